package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/tokmark/tokmark/bench"
	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/bench/target"
	"github.com/tokmark/tokmark/workloads"
	"github.com/tokmark/tokmark/workloads/dataset"
)

// prefixBytes is the beginning of a prompt that is looked at for what prompts
// share: some 16 tokens, a block of most servers' caches.
const prefixBytes = 64

func newDataset(w *world) *cobra.Command {
	o := &options{}
	var out string
	c := &cobra.Command{
		Use:   "dataset [scenario.yaml]",
		Short: "Build and show the requests of a run without sending them",
		Long: `Build the requests that "run" would send with the same options, and say what they are: how
many, how long, what they share, what they cost in tokens. Nothing is sent. --out writes them as
a file that --input-file reads back to the same requests.`,
		Example: `  tokmark dataset --isl 500 --isl-stddev 100 --osl 100 --request-count 200
  tokmark dataset --input-file prompts.jsonl --skip-bad-lines --request-count 10 --out ten.jsonl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			fs := c.Flags()
			if len(args) == 1 {
				if err := loadScenario(args[0], fs); err != nil {
					return usage(err)
				}
			}
			o.complete(fs, w.Getenv)
			if err := o.validate(fs); err != nil {
				return usage(err)
			}
			if o.tokenizer == "server" {
				return usagef("--tokenizer server: dataset asks no server: give the path of a tokenizer.json, cl100k_base or o200k_base")
			}
			return showDataset(w, o, out)
		},
	}
	showGroups(c, o.bind(c.Flags())[1:3])
	c.Flags().StringVar(&out, "out", "", "write the requests to a `file`")
	return c
}

func showDataset(w *world, o *options, out string) error {
	m := &record.Manifest{}
	tokenizer, err := o.openTokenizer()
	if err != nil {
		return usage(err)
	}
	known := &settled{}
	if tokenizer != nil {
		known.count.Counter, m.Tokenizer = tokenizer, tokenizer.Name()
	}
	if known.dialect, err = target.ByName(cmp.Or(o.dialect, "generic")); err != nil {
		return usage(err)
	}
	if len(o.models) == 0 {
		o.models = []string{"model"}
	}
	asked, err := o.work(m, known)
	if err != nil {
		return usage(err)
	}
	defer func() { _ = asked.close() }() // it was only read
	n := int(max(o.requestCount, o.sessions))
	if o.bounds == byDefault && asked.Len() > 0 {
		n = asked.Len() // the whole file
	}
	if n == 0 {
		return usagef("a run bounded by time has no number of requests: give --request-count or --num-sessions")
	}
	extra, err := o.extra()
	if err != nil {
		return usage(err)
	}
	plan := bench.Plan{Body: openai.BodyOptions{Model: o.models[0], Stream: o.streaming, IncludeUsage: o.usage, ContinuousUsage: o.perChunkUsage, Extra: extra}}
	d, err := describe(asked, n, openai.EndpointType(o.endpointType), plan.Body)
	if err != nil {
		return usage(err)
	}
	var text strings.Builder
	d.print(&text, m, o)
	if out != "" {
		format, err := writeDataset(out, asked, n)
		if err != nil {
			return usage(err)
		}
		fmt.Fprintf(&text, "written     %s (%s)\n", out, format)
	}
	_, err = io.WriteString(w.Stdout, text.String())
	return err
}

// writeDataset writes the requests to a new file; none is left after an error.
func writeDataset(path string, asked *work, n int) (dataset.Format, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", fmt.Errorf("write dataset: %w", err)
	}
	format, err := dataset.Write(f, asked.Source, n, asked.offsets)
	if cerr := f.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("write dataset: %w", cerr)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return format, err
}

// description is what is said of requests.
type description struct {
	sessions, requests int
	input, output      []int // tokens of each request; 0: not known, no limit
	cached             int   // tokens expected in a prefix cache
	bytes              int64
	bodies             map[[sha256.Size]byte]int
	prefixes           map[string]int
	first              string // prompt of the first request
}

func describe(source workloads.Source, n int, t openai.EndpointType, body openai.BodyOptions) (*description, error) {
	d := &description{bodies: map[[sha256.Size]byte]int{}, prefixes: map[string]int{}}
	for i := range n {
		s, err := source.At(i)
		if err != nil {
			return nil, err
		}
		d.sessions++
		for k, r := range s.Turns {
			b, err := openai.Body(t, r, body)
			if err != nil {
				return nil, fmt.Errorf("session %d: %w", i, err)
			}
			d.requests++
			d.bytes += int64(len(b))
			d.input, d.output = append(d.input, cmp.Or(r.OwnTokens, r.InputTokens)), append(d.output, r.OutputTokens)
			d.cached += r.ExpectedCached
			d.bodies[sha256.Sum256(b)]++
			if k == 0 {
				text := promptText(r)
				if d.first == "" {
					d.first = text
				}
				d.prefixes[text[:min(len(text), prefixBytes)]]++
			}
		}
	}
	return d, nil
}

// promptText is all that a request says, in order.
func promptText(r workloads.Request) string {
	if r.Body != nil {
		return string(r.Body)
	}
	if ids, ok := r.Extra["prompt"]; ok {
		return string(ids)
	}
	var b bytes.Buffer
	for _, m := range r.Messages {
		b.WriteString(m.Content)
		b.WriteByte('\n')
	}
	b.WriteString(r.Prompt)
	return b.String()
}

func (d *description) print(w *strings.Builder, m *record.Manifest, o *options) {
	row := func(name, format string, a ...any) { fmt.Fprintf(w, "%-11s %s\n", name, fmt.Sprintf(format, a...)) }
	row("workload", "%s", m.Workload)
	if m.Salt == "" {
		row("seed", "%d", m.Seed)
	} else {
		row("seed, salt", "%d, %s", m.Seed, m.Salt)
	}
	row("hash", "%s", m.WorkloadHash)
	if d.requests == d.sessions {
		row("requests", "%d, %s of bodies", d.requests, size(d.bytes))
	} else {
		row("requests", "%d turns of %d sessions, %s of bodies (without the answers that later turns carry)", d.requests, d.sessions, size(d.bytes))
	}
	switch {
	case m.Tokenizer != "":
		row("tokens", "counted with %s", m.Tokenizer)
	case o.makesPrompts() && o.promptAs == "text":
		row("tokens", "estimated: one a word (a run calibrates by the server's own counts)")
	}
	repeated, shared := 0, 0
	for _, n := range d.bodies {
		repeated += n - 1
	}
	for _, n := range d.prefixes {
		if n > 1 {
			shared += n
		}
	}
	row("duplicates", "%d requests repeat another (%s)", repeated, percent(repeated, d.requests))
	row("prefixes", "%d sessions begin with the same %d bytes as another (%s)", shared, prefixBytes, percent(shared, d.sessions))
	if m.Input != nil && len(m.Input.Skipped) > 0 {
		row("skipped", "%d lines of %s", m.Input.SkippedCount(), m.Input.File)
	}
	histogram(w, "input tokens", d.input)
	histogram(w, "output limit", d.output)
	in, out := sum(d.input), sum(d.output)
	if in > 0 {
		limit := "no limit on the output"
		if out > 0 {
			limit = fmt.Sprintf("at most %d output tokens", out)
		}
		row("cost", "%d input tokens, %s", in, limit)
	}
	if d.cached > 0 && in > 0 {
		row("cache", "%s of the input tokens should be found in a prefix cache", percent(d.cached, in))
	}
	if r := []rune(strings.Join(strings.Fields(d.first), " ")); len(r) > 0 {
		const shown = 80
		if len(r) > shown {
			r = append(r[:shown:shown], '…')
		}
		row("first", "%s", string(r))
	}
}

// histogram shows how lengths are spread, in at most ten rows.
func histogram(w *strings.Builder, name string, values []int) {
	known := slices.DeleteFunc(slices.Clone(values), func(v int) bool { return v == 0 })
	if len(known) == 0 {
		return
	}
	slices.Sort(known)
	lo, hi := known[0], known[len(known)-1]
	const rows, width = 10, 40
	step := max(1, (hi-lo+rows)/rows)
	counts := make([]int, (hi-lo)/step+1)
	for _, v := range known {
		counts[(v-lo)/step]++
	}
	fmt.Fprintf(w, "\n%s: mean %.1f, min %d, median %d, max %d\n", name, float64(sum(known))/float64(len(known)), lo, known[len(known)/2], hi)
	most := slices.Max(counts)
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.Options{}
	t.SetStyle(style)
	for i, n := range counts {
		from := lo + i*step
		label := fmt.Sprint(from)
		if step > 1 {
			label = fmt.Sprintf("%d-%d", from, from+step-1)
		}
		t.AppendRow(table.Row{label, n, strings.Repeat("#", (n*width+most-1)/most)})
	}
	for line := range strings.Lines(t.Render()) {
		w.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	w.WriteByte('\n')
}

func sum(values []int) int {
	n := 0
	for _, v := range values {
		n += v
	}
	return n
}

func percent(n, of int) string {
	if of == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.3g %%", 100*float64(n)/float64(of))
}

// size is a number of bytes for people.
func size(n int64) string {
	v, unit := float64(n), "B"
	for _, u := range []string{"kB", "MB", "GB"} {
		if v < 1000 {
			break
		}
		v, unit = v/1000, u
	}
	return fmt.Sprintf("%.3g %s", v, unit)
}
