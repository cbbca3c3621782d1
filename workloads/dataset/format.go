package dataset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrUnknownFormat is the error of a file whose format has to be named.
var ErrUnknownFormat = errors.New("its format cannot be told")

// Format names the layout of a file.
type Format string

// The formats. Those that AIPerf has are named as there.
const (
	// SingleTurn: {"text":…} a line, or {"texts":[…]}, whose texts are joined
	// by line ends; role, timestamp and delay in ms, output_length.
	SingleTurn Format = "single_turn"
	// MultiTurn: {"session_id":…,"turns":[…]} a line, turns as in SingleTurn.
	MultiTurn Format = "multi_turn"
	// RandomPool: SingleTurn lines, drawn at random; of a folder, each .jsonl
	// file gives one text to each session.
	RandomPool Format = "random_pool"
	// MooncakeTrace: {"timestamp":…,"input_length":…,"output_length":…,
	// "hash_ids":[…]} a line, or text_input; lines of one session_id are the
	// turns of a conversation.
	MooncakeTrace Format = "mooncake_trace"
	// BurstGPT: a table with Timestamp in seconds, Request tokens, Response
	// tokens.
	BurstGPT Format = "burst_gpt_trace"
	// AzureTrace: a table with TIMESTAMP, ContextTokens, GeneratedTokens.
	AzureTrace Format = "azure_trace"
	// Prompts: {"prompt":…} or {"messages":[…]} a line, with max_tokens,
	// max_completion_tokens or output_tokens, model, and sampling parameters.
	Prompts Format = "jsonl"
	// OpenAIBatch: {"custom_id":…,"body":{…}} a line. All fields of the body
	// are sent, but for those that say how to stream.
	OpenAIBatch Format = "openai_batch"
	// ShareGPT: an array of {"conversations":[{"from":…,"value":…}]}, or one
	// a line. A system prompt may come first; an answer that nobody asked for
	// at the start, and a question without an answer at the end, are left out.
	ShareGPT Format = "sharegpt"
	// RawPayload: one request body a line, sent byte for byte.
	RawPayload Format = "raw_payload"
)

// Formats are all formats.
func Formats() []Format {
	return []Format{SingleTurn, MultiTurn, RandomPool, MooncakeTrace, BurstGPT, AzureTrace, Prompts, OpenAIBatch, ShareGPT, RawPayload}
}

// FormatNames is the list of all formats, to be read by people.
func FormatNames() string {
	var names []string
	for _, f := range Formats() {
		names = append(names, string(f))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// ParseFormat reads a format's name; mooncake, burstgpt, azure and prompts are
// short for some. "" stays "": to be guessed.
func ParseFormat(s string) (Format, error) {
	switch s {
	case "mooncake":
		return MooncakeTrace, nil
	case "burstgpt", "burst_gpt":
		return BurstGPT, nil
	case "azure":
		return AzureTrace, nil
	case "prompts", "custom":
		return Prompts, nil
	}
	if f := Format(s); f == "" || slices.Contains(Formats(), f) {
		return f, nil
	}
	return "", fmt.Errorf("dataset format %q is not known: use %s", s, FormatNames())
}

// Lengths reports whether the format gives lengths, for which prompts are made.
func (f Format) Lengths() bool { return f == MooncakeTrace || f.csv() }

func (f Format) csv() bool { return f == BurstGPT || f == AzureTrace }
