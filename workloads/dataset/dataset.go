// Package dataset reads workloads from files: prompt lists, conversations and
// traces, in the formats of AIPerf, vLLM, OpenAI batches, ShareGPT, Mooncake,
// BurstGPT and Azure.
//
// Good lines are used unchanged. A bad line stops the reading, or is skipped,
// counted and listed if Options say so; it never becomes an odd request.
package dataset

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/tokmark/tokmark/workloads"
	"github.com/tokmark/tokmark/workloads/arrival"
)

// Prompter makes the prompts of a trace that has only lengths. It is called
// from several goroutines at once and must be a pure function of its
// arguments. A synthetic.Generator is one.
type Prompter interface {
	// Prompt returns a text of the given number of tokens for entry i, and how
	// many a tokenizer counts in it; 0: there is none.
	Prompt(i, tokens int) (prompt string, own int, err error)
	// Blocks returns a text of the given number of tokens made of one block
	// for each id: the same id always gives the same text. All blocks but the
	// last have blockTokens tokens.
	Blocks(ids []int64, tokens, blockTokens int) (prompt string, own int, err error)
}

// Counter counts tokens. It must be safe for concurrent use.
type Counter interface {
	Count(text string) int
}

// Options say how a file is read. The zero value guesses the format and stops
// at the first bad line.
type Options struct {
	// Format of the file; "": guessed from the name and the first lines.
	Format Format
	// SkipBadLines goes on after a bad line and lists it in the Report.
	SkipBadLines bool

	// Prompter makes prompts for traces of lengths; a file that needs one is
	// refused without.
	Prompter Prompter
	// BlockTokens is the length of the block behind a hash id (AIPerf's
	// --isl-block-size); 0: 512.
	BlockTokens int
	// Counter gives the length of ShareGPT's replies as the output length of
	// their requests, and OwnTokens of texts. Without one neither is known.
	Counter Counter

	// Trace maps the times of the file to Offsets. For the Azure trace, whose
	// times are dates, time 0 of the file is its first usable one.
	Trace arrival.Trace
	// Untimed: there are no Offsets, whatever times the file has (AIPerf's
	// --no-fixed-schedule). Think times stay.
	Untimed bool

	// WholeConversation: all turns of a ShareGPT record, not only the first.
	WholeConversation bool
	// Seed picks the entries of a random pool; Sessions is how many sessions
	// are made of it, 0: 100.
	Seed     uint64
	Sessions int
}

// Dataset is an input file as a workloads.Source. Texts stay in the file: it
// holds an index of a few bytes a line, and reads a session when it is asked
// for. It is safe for concurrent use. The file must not change while it is
// open.
type Dataset struct {
	o      Options
	format Format
	files  []*os.File
	parse  parser

	spans []span  // the entries, session by session
	first []int32 // the first span of each session, and one past the last
	// pools, for a random pool, are the ends of the files in spans.
	pools []int

	offsets []time.Duration
	report  Report
}

// span is where an entry stands. It holds no pointer, for there may be
// millions of them.
type span struct {
	at   int64 // byte offset
	size int32
	line int32 // or record
	file int32
}

var _ workloads.Source = (*Dataset)(nil)

// Open reads the file (or folder, for a random pool) once, checks every line
// and keeps an index. The error of a bad line is "path:line: reason: detail".
// A file without any usable line is an error too.
func Open(path string, o Options) (*Dataset, error) {
	if err := o.Trace.Validate(); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if o.BlockTokens < 0 || o.Sessions < 0 {
		return nil, fmt.Errorf("read %s: block size %d, sessions %d: neither may be below 0", path, o.BlockTokens, o.Sessions)
	}
	if o.BlockTokens == 0 {
		o.BlockTokens = 512
	}
	if o.Sessions == 0 {
		o.Sessions = 100
	}
	s := &scan{d: &Dataset{o: o, format: o.Format}}
	if err := s.run(path); err != nil {
		return nil, errors.Join(err, s.d.Close())
	}
	return s.d, nil
}

// Len is the number of sessions.
func (d *Dataset) Len() int {
	if d.pools != nil {
		return d.o.Sessions
	}
	return len(d.first) - 1
}

// Offsets says when each session is due, ascending, in the order of At; nil:
// the file has no times. The caller must not change it.
func (d *Dataset) Offsets() []time.Duration { return d.offsets }

// Format is the format that was read.
func (d *Dataset) Format() Format { return d.format }

// Report says what was used of the file. The caller must not change it.
func (d *Dataset) Report() Report { return d.report }

// Close closes the files. At fails afterwards.
func (d *Dataset) Close() error {
	var errs []error
	for _, f := range d.files {
		errs = append(errs, f.Close())
	}
	d.files = nil
	return errors.Join(errs...)
}

// At returns session i mod Len. Sessions of a file with times are in the order
// of their times, others in that of the file.
func (d *Dataset) At(i int) (workloads.Session, error) {
	n := d.Len()
	i = ((i % n) + n) % n
	entries, err := d.entries(i)
	if err != nil {
		return workloads.Session{}, err
	}
	s := workloads.Session{ID: entries[0].session}
	for _, e := range entries {
		for t, r := range e.turns {
			if err := d.fill(&r, e, len(s.Turns)*n+i); err != nil {
				return workloads.Session{}, fmt.Errorf("prompt of session %s, turn %d: %w", s.ID, t, err)
			}
			s.Turns = append(s.Turns, r)
		}
	}
	return s, nil
}

// fill makes the prompt of a request that has only a length, and counts what
// the file does not tell.
func (d *Dataset) fill(r *workloads.Request, e entry, unique int) (err error) {
	if e.lengths {
		if len(e.blocks) > 0 {
			r.Prompt, r.OwnTokens, err = d.o.Prompter.Blocks(e.blocks, r.InputTokens, d.o.BlockTokens)
		} else {
			r.Prompt, r.OwnTokens, err = d.o.Prompter.Prompt(unique, r.InputTokens)
		}
		return err
	}
	if d.o.Counter == nil {
		return nil
	}
	if r.OutputTokens == 0 && e.reply != "" {
		r.OutputTokens = max(1, d.o.Counter.Count(e.reply))
	}
	if r.Body == nil {
		r.OwnTokens = d.o.Counter.Count(r.Prompt)
		for _, m := range r.Messages {
			r.OwnTokens += d.o.Counter.Count(m.Content)
		}
	}
	return nil
}

// entries reads what session i is made of.
func (d *Dataset) entries(i int) ([]entry, error) {
	if d.pools != nil {
		e, err := d.draw(i)
		return []entry{e}, err
	}
	var out []entry
	for _, sp := range d.spans[d.first[i]:d.first[i+1]] {
		e, err := d.read(sp)
		if err != nil {
			return nil, err
		}
		if len(out) > 0 {
			e.follow(out[len(out)-1])
		}
		out = append(out, e)
	}
	if d.format != ShareGPT {
		return out, nil
	}
	// A conversation is one record with a reply for each turn.
	var split []entry
	for k, r := range out[0].turns {
		split = append(split, entry{session: out[0].session, turns: []workloads.Request{r}, reply: out[0].replies[k]})
	}
	return split, nil
}

// draw makes session i of a random pool: one entry of each file.
func (d *Dataset) draw(i int) (entry, error) {
	var seed [32]byte
	for k := range 8 {
		seed[k] = byte(d.o.Seed >> (8 * k))
		seed[8+k] = byte(uint64(i) >> (8 * k))
	}
	rng := rand.New(rand.NewChaCha8(seed))
	out := entry{session: fmt.Sprint(i)}
	begin := 0
	var texts []string
	for _, end := range d.pools {
		e, err := d.read(d.spans[begin+rng.IntN(end-begin)])
		if err != nil {
			return out, err
		}
		for _, m := range e.turns[0].Messages {
			texts = append(texts, m.Content)
		}
		if out.turns == nil {
			out.turns = e.turns
		}
		begin = end
	}
	out.turns[0].Messages = []workloads.Message{{Role: "user", Content: strings.Join(texts, "\n")}}
	return out, nil
}

// read parses an entry that was found good before.
func (d *Dataset) read(sp span) (entry, error) {
	if d.files == nil {
		return entry{}, errors.New("read dataset: it is closed")
	}
	f := d.files[sp.file]
	raw := make([]byte, sp.size)
	if _, err := f.ReadAt(raw, sp.at); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file has become shorter since it was opened")
		}
		return entry{}, fmt.Errorf("read %s:%d: %w", f.Name(), sp.line, err)
	}
	e, err := d.parse(raw)
	if err != nil {
		return entry{}, fmt.Errorf("read %s:%d: the file has changed since it was opened: %w", f.Name(), sp.line, err)
	}
	if e.session == "" {
		e.session = fmt.Sprint(sp.line)
	}
	return e, nil
}

// Hash is the SHA-256, in hex, of all that the sessions ask for and of the
// offsets, whatever the layout of the file: line ends, key order, spaces and
// skipped lines do not change it. Of prompts that the Prompter makes it takes
// the lengths and block ids, not the texts. It reads the whole file again.
func (d *Dataset) Hash() (string, error) {
	sum := sha256.New()
	enc := json.NewEncoder(sum)
	for i := range d.Len() {
		entries, err := d.entries(i)
		if err != nil {
			return "", err
		}
		for t, e := range entries {
			line := struct {
				Turn   int
				Offset time.Duration
				Turns  []workloads.Request
				Blocks []int64
				Reply  string
			}{Turn: t, Turns: e.turns, Blocks: e.blocks, Reply: e.reply}
			if d.offsets != nil {
				line.Offset = d.offsets[i]
			}
			if err := enc.Encode(line); err != nil {
				return "", fmt.Errorf("hash of the dataset: %w", err)
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
