package openai

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tokmark/tokmark/bench/record"
)

func TestHTTPFailure(t *testing.T) {
	tests := []struct {
		name    string
		status  int
		header  []string // name, value
		body    string
		want    record.Outcome
		message string
		typ     string
		code    string
		after   time.Duration
	}{
		{"OpenAI", 500, nil, `{"error":{"message":"boom","type":"server_error","param":null,"code":"internal"}}`, record.ServerError, "boom", "server_error", "internal", 0},
		{"flat", 404, nil, `{"object":"error","message":"no such model","type":"NotFoundError","param":"model","code":404}`, record.ClientError, "no such model", "NotFoundError", "404", 0},
		{"error string", 503, nil, `{"error":"overloaded","error_type":"overloaded"}`, record.ServerError, "overloaded", "overloaded", "", 0},
		{"nearest type wins", 529, nil, `{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`, record.ServerError, "busy", "overloaded_error", "", 0},
		{"detail", 401, nil, `{"detail":"Not authenticated"}`, record.ClientError, "Not authenticated", "", "", 0},
		{"detail list", 422, nil, `{"detail":[{"type":"extra_forbidden","loc":["body","messages",0,"x"],"msg":"not permitted","input":{"ignore_eos":true}},{"loc":["body","prompt"],"msg":"missing"}]}`,
			record.ClientError, "body.messages.0.x: not permitted; body.prompt: missing", "extra_forbidden", "", 0},
		{"a list", 400, nil, `[{"error":{"code":400,"message":"bad request","status":"INVALID"}}]`, record.ClientError, "bad request", "", "400", 0},
		{"JSON without a message", 418, nil, `{"a": 1}`, record.ClientError, `{"a": 1}`, "", "", 0},
		{"text", 502, nil, "upstream\r\n\tgone ", record.ServerError, "upstream gone", "", "", 0},
		{"nothing", 504, nil, "", record.ServerError, "504 Gateway Timeout", "", "", 0},
		{"unknown status", 599, nil, "", record.ServerError, "599", "", "", 0},
		{"redirect", 301, []string{"Location", "https://other/v1"}, "", record.ClientError, "301 Moved Permanently, to https://other/v1: redirects are not followed", "", "", 0},
		{"redirect with a page", 307, []string{"Location", "/v1/"}, "<html><h1>307 Temporary Redirect</h1></html>", record.ClientError, "307 Temporary Redirect, to /v1/: redirects are not followed", "", "", 0},
		{"HTML", 503, nil, "<!DOCTYPE html>\n<html><head><title>503 &amp; out</title><style>p{color:red}</style>\n<SCRIPT type=x>if (a<b) alert('</p>')</SCRIPT></head><!-- a > b --><body><p>No&nbsp;worker<br>here</p></body></html>",
			record.ServerError, "503 & out No worker here", "", "", 0},
		{"HTML inside JSON", 502, nil, `{"error":{"message":"proxy said <html><body><h1>Bad Gateway</h1></body></html>"}}`, record.ServerError, "proxy said Bad Gateway", "", "", 0},
		{"open script", 500, nil, "<p>a</p><script>var x = 1", record.ServerError, "a", "", "", 0},
		{"rate limit", 429, []string{"Retry-After", " 2 "}, `{"error":{"message":"slow down","code":"rate_limit"}}`, record.RateLimited, "slow down", "", "rate_limit", 2 * time.Second},
		{"rate limit that names a field", 429, nil, `{"error":{"message":"max_tokens a minute","param":"max_tokens"}}`, record.RateLimited, "max_tokens a minute", "", "", 0},
		{"a date to wait for", 429, []string{"Retry-After", "Wed, 21 Oct 2026 07:28:00 GMT"}, "x", record.RateLimited, "x", "", "", 0},
		{"negative wait", 429, []string{"Retry-After", "-1"}, "x", record.RateLimited, "x", "", "", 0},
		{"endless wait", 429, []string{"Retry-After", "9223372036854775807"}, "x", record.RateLimited, "x", "", "", 0},
		{"wait on 503", 503, []string{"Retry-After", "0007"}, "x", record.ServerError, "x", "", "", 7 * time.Second},
		{"rejected", 400, nil, `{"error":{"message":"Unknown parameter","param":"stream_options"}}`, record.Rejected, "Unknown parameter", "", "", 0},
		{"rejected 422", 422, nil, `{"detail":"unexpected field max_completion_tokens"}`, record.Rejected, "unexpected field max_completion_tokens", "", "", 0},
		{"a field in a 404 is no rejection", 404, nil, `{"detail":"max_tokens"}`, record.ClientError, "max_tokens", "", "", 0},
		{"deep", 500, nil, strings.Repeat(`{"error":`, 50) + `"x"` + strings.Repeat("}", 50), record.ServerError, `{"error":`, "", "", 0},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{}
			for i := 0; i < len(c.header); i += 2 {
				h.Set(c.header[i], c.header[i+1])
			}
			outcome, f := HTTPFailure(c.status, h, []byte(c.body))
			ok := f.Message == c.message || c.name == "deep" && strings.HasPrefix(f.Message, c.message)
			if outcome != c.want || !ok || f.Type != c.typ || f.Code != c.code || f.RetryAfter != c.after {
				t.Errorf("%s %+v,\nwant %s %q %q %q %v", outcome, f, c.want, c.message, c.typ, c.code, c.after)
			}
			if c.body != "" && f.Body != c.body {
				t.Errorf("body %q", f.Body)
			}
		})
	}
}

func TestRejectedField(t *testing.T) {
	tests := []struct{ body, want string }{
		{`{"object":"error","message":"Unrecognized request argument supplied: stream_options","param":"stream_options"}`, "stream_options"},
		{`{"error":{"message":"x","param":"stream_options.continuous_usage_stats"}}`, "stream_options"},
		{`{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","param":"max_tokens"}}`, "max_tokens"},
		{`{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."}}`, "max_tokens"},
		{`{"error":{"message":"Unsupported parameter: max_completion_tokens; use max_tokens"}}`, "max_completion_tokens"},
		{`{"error":{"message":"unknown field","param":"my_own_field"}}`, "my_own_field"},
		{`{"detail":[{"loc":["body","ignore_eos"],"msg":"Extra inputs are not permitted","input":{"stream_options":1}}]}`, "ignore_eos"},
		{`{"detail":[{"loc":["body","messages",0],"msg":"bad","input":"max_tokens"}]}`, ""},
		{`{"message":"1 validation error for ChatRequest\nmin_tokens\n  Extra inputs are not permitted"}`, "min_tokens"},
		{`json: unknown field "ignore_eos"`, "ignore_eos"},
		{"unknown field `seed`", "seed"},
		{`{"error":{"message":"'temperature' must be at most 2"}}`, "temperature"},
		{`{"error":{"message":"please stop the stream and seed n tools"}}`, ""},
		{`{"error":{"message":"total_max_tokens_left is 0"}}`, ""},
		{`{"error":{"message":"This model's maximum context length is 2048 tokens","param":"messages","code":"context_length_exceeded"}}`, ""},
		{`{"error":{"message":"too long","param":"input_tokens"}}`, ""},
		{`{"error":{"message":"bad","param":"messages[0].content"}}`, ""},
		{`{"error":{"message":"bad","param":null}}`, ""},
		{`{"error":{"message":"bad","param":"body.top_k"}}`, "top_k"},
		{`{"error":"` + strings.Repeat("long ", 200) + `cache_salt"}`, "cache_salt"},
		{`{}`, ""},
		{`null`, ""},
		{``, ""},
	}
	for _, c := range tests {
		if got := RejectedField([]byte(c.body)); got != c.want {
			t.Errorf("%.80s: %q, want %q", c.body, got, c.want)
		}
	}
}

// checkMessage fails unless the message is one short line.
func checkMessage(t *testing.T, s string) {
	t.Helper()
	if utf8.RuneCountInString(s) > maxMessage || !utf8.ValidString(s) || s != strings.Join(strings.Fields(s), " ") ||
		strings.ContainsFunc(s, unicode.IsControl) {
		t.Fatalf("not one short line: %q", s)
	}
}

func TestMessageIsOneShortLine(t *testing.T) {
	for _, body := range []string{
		strings.Repeat("é", 299), strings.Repeat("é", 301), strings.Repeat("ab ", 500), strings.Repeat("x", 297) + "   yz", strings.Repeat("x", 298) + " y",
		"a\x1b[31mred\x00\u0085\u2028b", "\xff\xfe bad", `{"error":{"message":"a\u0000\n\tb","type":"` + strings.Repeat("t", 900) + `"}}`,
	} {
		_, f := HTTPFailure(500, http.Header{}, []byte(body))
		if f.Message == "" {
			t.Errorf("%.20q: no message", body)
		}
		checkMessage(t, f.Message)
		checkMessage(t, f.Type)
	}
}

func FuzzHTTPFailure(f *testing.F) {
	f.Add(429, "2", []byte(`{"error":{"message":"m","param":"n"}}`))
	f.Add(400, "", []byte(`<html><script>x</SCRIPT ><style`))
	f.Add(422, "-", []byte(`{"detail":[{"loc":["body",1,null],"msg":"m"},[[]]]}`))
	f.Add(301, "x", []byte("<!-- "))
	f.Fuzz(func(t *testing.T, status int, wait string, body []byte) {
		outcome, fail := HTTPFailure(status, http.Header{"Retry-After": {wait}, "Location": {wait}}, body)
		if !outcome.IsError() || fail.RetryAfter < 0 {
			t.Fatalf("%s %+v", outcome, fail)
		}
		checkMessage(t, fail.Message)
		checkMessage(t, fail.Type)
		checkMessage(t, fail.Code)
		if !utf8.ValidString(fail.Body) {
			t.Fatalf("body %q", fail.Body)
		}
	})
}
