package dataset

import "fmt"

// Report says what came of the entries of a file: lines, rows, or the records
// of a JSON array.
type Report struct {
	// Usable counts those used, Cut the good ones outside the Trace's Start
	// and End.
	Usable, Cut int
	// Skipped lists the bad ones in the order of the file, the first MaxListed
	// of them; Reasons counts all.
	Skipped []Skip
	Reasons map[Reason]int
	// Reordered: the times were not ascending, and the sessions were sorted by
	// them (ties keep the order of the file).
	Reordered bool
}

// MaxListed is how many bad lines a Report lists.
const MaxListed = 1000

// SkippedCount is the number of all bad lines.
func (r Report) SkippedCount() int {
	n := 0
	for _, c := range r.Reasons {
		n += c
	}
	return n
}

// Skip is one bad line.
type Skip struct {
	File string
	// Line counts all lines from 1, blank ones and a header included; in a
	// JSON array it is the record, from 0.
	Line   int
	Reason Reason
	Detail string
}

// String is "file:line: reason: detail".
func (s Skip) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", s.File, s.Line, s.Reason, s.Detail)
}

// Reason says in one word why a line is of no use.
type Reason string

// The reasons.
const (
	BadJSON           Reason = "json"
	BadShape          Reason = "shape" // missing key, wrong type, short row
	Empty             Reason = "empty"
	BadEncoding       Reason = "encoding" // not UTF-8
	NoReply           Reason = "no_reply"
	ZeroInput         Reason = "zero_input"
	ZeroOutput        Reason = "zero_output"
	NoTimestamp       Reason = "no_timestamp"
	NegativeTimestamp Reason = "negative_timestamp"
)
