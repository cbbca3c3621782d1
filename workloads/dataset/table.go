package dataset

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tokmark/tokmark/workloads"
)

// columns are the names of the time, input and output columns.
var columns = map[Format][3]string{
	BurstGPT:   {"timestamp", "request tokens", "response tokens"},
	AzureTrace: {"timestamp", "contexttokens", "generatedtokens"},
}

func row(line []byte) ([]string, error) {
	if !utf8.Valid(line) {
		return nil, bad(BadEncoding, "byte %d is not UTF-8", invalidAt(line)+1)
	}
	r := csv.NewReader(bytes.NewReader(line))
	fields, err := r.Read()
	if err != nil {
		var p *csv.ParseError
		if errors.As(err, &p) {
			err = p.Err
		}
		return nil, bad(BadShape, "it is no row of a table: %v", err)
	}
	return fields, nil
}

func find(header []string, f Format) (at [3]int, missing string) {
	for k, want := range columns[f] {
		at[k] = -1
		for i, name := range header {
			if strings.EqualFold(strings.TrimSpace(name), want) {
				at[k] = i
			}
		}
		if at[k] < 0 {
			missing = want
		}
	}
	return at, missing
}

func guessTable(line []byte) (Format, bool) {
	header, err := row(line)
	if err != nil {
		return "", false
	}
	for _, f := range []Format{BurstGPT, AzureTrace} {
		if _, missing := find(header, f); missing == "" {
			return f, true
		}
	}
	return "", false
}

// newTable reads the header of a table and returns the parser of its rows.
func (o *Options) newTable(f Format, header []byte) (parser, error) {
	names, err := row(header)
	if err != nil {
		return nil, err
	}
	at, missing := find(names, f)
	if missing != "" {
		return nil, fmt.Errorf("its header has no column %q; it has %s", missing, strings.Join(names, ", "))
	}
	return func(line []byte) (entry, error) {
		fields, err := row(line)
		if err != nil {
			return entry{}, err
		}
		if need := max(at[0], at[1], at[2]) + 1; len(fields) < need {
			return entry{}, bad(BadShape, "it has %d fields, the header has %d", len(fields), len(names))
		}
		var r workloads.Request
		if r.InputTokens, err = cell(fields[at[1]], columns[f][1], ZeroInput); err != nil {
			return entry{}, err
		}
		if r.OutputTokens, err = cell(fields[at[2]], columns[f][2], ZeroOutput); err != nil {
			return entry{}, err
		}
		e := entry{timed: true, lengths: true, turns: []workloads.Request{r}}
		e.at, err = moment(strings.TrimSpace(fields[at[0]]), f)
		return e, err
	}, nil
}

// cell reads a number of tokens; some writers add ".0".
func cell(s, name string, zero Reason) (int, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || v < 0 || v > math.MaxInt32 || v != math.Trunc(v) {
		return 0, bad(BadShape, "%s %q is no number of tokens", name, s)
	}
	if v == 0 {
		return 0, bad(zero, "%s is 0", name)
	}
	return int(v), nil
}

func moment(s string, f Format) (time.Duration, error) {
	if s == "" {
		return 0, bad(NoTimestamp, "the timestamp is blank")
	}
	if f == AzureTrace {
		for _, layout := range []string{"2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", time.RFC3339Nano} {
			if t, err := time.Parse(layout, s); err == nil && t.Year() >= 1970 && t.Year() < 2200 {
				return time.Duration(t.UnixNano()), nil
			}
		}
		return 0, bad(BadShape, "timestamp %q is no date such as 2023-11-16 18:17:03.9799600", s)
	}
	v, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil || math.IsNaN(v) || v > 9e9:
		return 0, bad(BadShape, "timestamp %q is no number of seconds", s)
	case v < 0:
		return 0, bad(NegativeTimestamp, "timestamp %s is below 0", s)
	}
	return time.Duration(math.Round(v * 1e9)), nil
}
