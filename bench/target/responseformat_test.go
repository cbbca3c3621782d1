package target

import (
	"testing"

	"github.com/tokmark/tokmark/bench/openai"
)

func TestResponseFormat(t *testing.T) {
	for _, c := range []struct {
		dialect     string
		of          openai.EndpointType
		field, want string
	}{
		{"vllm", openai.Chat, "response_format", `{"json_schema":{"name":"answer","schema":{"type":"object"},"strict":true},"type":"json_schema"}`},
		{"vllm", openai.Completions, "response_format", `{"json_schema":{"name":"answer","schema":{"type":"object"},"strict":true},"type":"json_schema"}`},
		{"openai", openai.Responses, "text", `{"format":{"name":"answer","schema":{"type":"object"},"strict":true,"type":"json_schema"}}`},
		{"tgi", openai.Chat, "response_format", `{"type":"json","value":{"type":"object"}}`},
		{"llama-cpp-python", openai.Chat, "response_format", `{"schema":{"type":"object"},"type":"json_object"}`},
		{"deepseek-api", openai.Chat, "response_format", `{"type":"json_object"}`},
	} {
		d, err := ByName(c.dialect)
		if err != nil {
			t.Fatal(err)
		}
		field, got, err := d.ResponseFormat(c.of, []byte(`{"type":"object"}`))
		if err != nil || field != c.field || string(got) != c.want {
			t.Errorf("%s, %s: %s %s, %v\nwant %s %s", c.dialect, c.of, field, got, err, c.field, c.want)
		}
	}
}
