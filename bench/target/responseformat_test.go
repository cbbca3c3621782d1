package target

import "testing"

func TestResponseFormat(t *testing.T) {
	for name, want := range map[string]string{
		"vllm":             `{"json_schema":{"name":"answer","schema":{"type":"object"},"strict":true},"type":"json_schema"}`,
		"llama-cpp-python": `{"schema":{"type":"object"},"type":"json_object"}`,
		"deepseek-api":     `{"type":"json_object"}`,
	} {
		d, err := ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := d.ResponseFormat([]byte(`{"type":"object"}`)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v\nwant %s", name, got, err, want)
		}
	}
}
