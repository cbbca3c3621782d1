package record

import "time"

// Outcome is how one attempt ended. Each record has exactly one.
type Outcome string

// The outcomes. OK needs proof: 2xx, a stream if one was asked for, no error
// object, some output, a finish reason or [DONE], a clean end.
const (
	OK Outcome = "ok"

	RateLimited Outcome = "http_429"      // 429
	Rejected    Outcome = "http_rejected" // 4xx that names a request field
	ClientError Outcome = "http_4xx"      // any other 4xx, and 3xx
	ServerError Outcome = "http_5xx"      // 5xx

	ErrorBody     Outcome = "error_body"      // 2xx, no stream, holds an error
	StreamError   Outcome = "error_in_stream" // error object or event: error in a 2xx stream
	Truncated     Outcome = "truncated"       // body over without finish reason and [DONE], or cut inside its encoding
	Malformed     Outcome = "malformed"       // data that is no JSON, or an answer that is no HTTP
	Empty         Outcome = "empty"           // a proper answer without any output
	NotStreaming  Outcome = "not_streaming"   // one whole JSON answer to a stream request
	BadEncoding   Outcome = "bad_encoding"    // a content encoding that was not asked for
	ConnectFailed Outcome = "connect_failed"  // DNS, dial or TLS failed, refused included
	Reset         Outcome = "reset"           // the connection broke

	ConnectTimeout   Outcome = "connect_timeout"
	FirstByteTimeout Outcome = "first_byte_timeout"
	IdleTimeout      Outcome = "idle_timeout"  // gap between bytes
	TotalTimeout     Outcome = "total_timeout" // whole request

	Dropped   Outcome = "dropped"   // never sent
	Cancelled Outcome = "cancelled" // by us: interrupted, or past the grace period
)

// Outcomes lists all outcomes in the order of reports.
var Outcomes = []Outcome{
	OK, RateLimited, Rejected, ClientError, ServerError, ErrorBody, StreamError,
	Truncated, Malformed, Empty, NotStreaming, BadEncoding, ConnectFailed, Reset,
	ConnectTimeout, FirstByteTimeout, IdleTimeout, TotalTimeout, Dropped, Cancelled,
}

func (o Outcome) known() bool {
	for _, k := range Outcomes {
		if o == k {
			return true
		}
	}
	return false
}

// IsError reports whether the outcome counts as an error: anything but OK, and
// but Cancelled and Dropped, which say nothing about the server.
func (o Outcome) IsError() bool { return o != OK && o != Cancelled && o != Dropped }

// Failure is what is kept of a failed request.
type Failure struct {
	// Stage is where it failed: build, dns, connect, tls, write, headers, body.
	Stage string `json:"stage,omitempty"`
	// Message is the server's message or the transport's error in one line,
	// with secrets masked and markup removed.
	Message string `json:"message,omitempty"`
	// Type and Code are those of the server's error object.
	Type string `json:"type,omitempty"`
	Code string `json:"code,omitempty"`
	// RetryAfter is what the server asked for; it is kept, never followed.
	RetryAfter time.Duration `json:"retry_after_ns,omitempty"`
	// Body holds the first bytes of the answer, masked.
	Body string `json:"body,omitempty"`
}
