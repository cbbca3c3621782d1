package target

import (
	"encoding/json"

	"github.com/tokmark/tokmark/bench/openai"
)

// ResponseFormat is the body field, and its value, that asks for answers that
// fit a JSON schema, as the dialect has it at an endpoint of that type.
func (d Dialect) ResponseFormat(t openai.EndpointType, schema json.RawMessage) (field string, value json.RawMessage, err error) {
	type object = map[string]any
	field = "response_format"
	var v object
	switch {
	case t == openai.Responses: // one form for all that have it
		field = "text"
		v = object{"format": object{"type": "json_schema", "name": "answer", "schema": schema, "strict": true}}
	case d.Name == "llama-cpp-python":
		v = object{"type": "json_object", "schema": schema}
	case d.Name == "tgi": // its own grammar, which all of its versions know
		v = object{"type": "json", "value": schema}
	case d.Name == "deepseek-api": // any JSON, without a schema
		v = object{"type": "json_object"}
	default:
		v = object{"type": "json_schema", "json_schema": object{"name": "answer", "schema": schema, "strict": true}}
	}
	value, err = json.Marshal(v)
	return field, value, err
}
