package target

import "encoding/json"

// ResponseFormat is the value of response_format that asks for answers that
// fit a JSON schema, as the dialect has it.
func (d Dialect) ResponseFormat(schema json.RawMessage) (json.RawMessage, error) {
	var v any
	switch d.Name {
	case "llama-cpp-python":
		v = map[string]any{"type": "json_object", "schema": schema}
	case "deepseek-api": // any JSON, without a schema
		v = map[string]any{"type": "json_object"}
	default:
		v = map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "answer", "schema": schema, "strict": true}}
	}
	return json.Marshal(v)
}
