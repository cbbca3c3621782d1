package record

import (
	"encoding/json"
	"time"
)

// ServerTimings are the phases of one request as the server timed them by its
// own clock, in nanoseconds; nil is a phase that it did not tell. Servers cut
// them in different places, so only those of one Source can be compared.
type ServerTimings struct {
	// Queue is from the request's arrival to its first scheduling.
	Queue *time.Duration `json:"queue_ns,omitempty"`
	// Prefill is from scheduling to the first token with vLLM and Dynamo, and
	// the work on the prompt alone with llama.cpp and Groq.
	Prefill *time.Duration `json:"prefill_ns,omitempty"`
	// Decode is from the first token (or the end of Prefill) to the last.
	Decode *time.Duration `json:"decode_ns,omitempty"`
	// TTFT is from arrival to the first token, where the server tells it as one
	// figure.
	TTFT *time.Duration `json:"ttft_ns,omitempty"`
	// Source is the object of the answer that told: timings (llama.cpp),
	// metrics (vLLM), nvext.timing (Dynamo), x_groq.usage (Groq), stats (NIM).
	Source string `json:"source"`
	// DraftTokens were guessed ahead by speculative decoding, AcceptedTokens of
	// them kept.
	DraftTokens    Count `json:"draft_tokens,omitzero"`
	AcceptedTokens Count `json:"accepted_tokens,omitzero"`
}

// UnmarshalJSON reads timings; counts that are not there are unknown.
func (t *ServerTimings) UnmarshalJSON(b []byte) error {
	type plain ServerTimings // without this method
	p := plain{DraftTokens: Unknown, AcceptedTokens: Unknown}
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	*t = ServerTimings(p)
	return nil
}
