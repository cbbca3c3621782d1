package target

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	generic = "generic"

	models  = "/v1/models"
	metrics = "/metrics"
)

// probes are the paths that Detect asks, in order, until one tells the dialect.
// /metrics comes last: with TensorRT-LLM each reading of it empties it.
var probes = []string{models, "/", "/props", "/info", "/get_model_info", "/v1/metadata", "/openapi.json", "/prometheus/metrics", metrics}

// clue is a sign of a dialect in the answer to a GET. All that it names must
// hold. A Server header proves nothing by itself: it comes with a second clue.
type clue struct {
	path     string
	status   int    // 0: 200
	json     string // a path that must exist in the answer, and not be empty
	header   string // a header that must be there
	equals   string // the value of json or header; empty: any
	contains string // a text in an answer that is no HTML
	and      *clue
}

// fits reports whether the clue is in the answer to its path, apart from and.
func (c *clue) fits(a *answer) bool {
	if a == nil {
		return false
	}
	switch {
	case c.header != "":
		got := a.header.Get(c.header)
		return got != "" && (c.equals == "" || got == c.equals)
	case c.status != 0:
		return a.status == c.status
	case !a.ok():
		return false
	case c.json != "":
		v, ok := lookup(a.json(), c.json, "")
		if !ok || v == nil || v == "" {
			return false
		}
		return c.equals == "" || v == c.equals
	}
	return !bytes.HasPrefix(bytes.TrimSpace(a.body), []byte("<")) && bytes.Contains(a.body, []byte(c.contains))
}

func (c *clue) String() string {
	switch {
	case c.header != "" && c.equals != "":
		return fmt.Sprintf("GET %s: header %s is %q", c.path, c.header, c.equals)
	case c.header != "":
		return fmt.Sprintf("GET %s: header %s", c.path, c.header)
	case c.status != 0:
		return fmt.Sprintf("GET %s: status %d", c.path, c.status)
	case c.equals != "":
		return fmt.Sprintf("GET %s: %s is %q", c.path, c.json, c.equals)
	case c.json != "":
		return fmt.Sprintf("GET %s: has %s", c.path, c.json)
	}
	return fmt.Sprintf("GET %s: contains %q", c.path, c.contains)
}

// Facts tells how a dialect was found.
type Facts struct {
	// Evidence is what decided, in words; for the generic dialect, what was
	// tried.
	Evidence string
	// Engine is the dialect of the engine behind a front end that shows it;
	// else empty.
	Engine string
	// Models are the ids in the server's list; nil if there is none.
	Models []string
}

// Detect finds the dialect of the server. It makes a handful of GETs, each
// bounded by the server's Timeout and none after ctx is done; the first clue
// decides. A server that gives no clue is generic. It is an error if the server
// cannot be reached at all.
func (s *Server) Detect(ctx context.Context) (Dialect, Facts, error) {
	for _, d := range dialects {
		for _, host := range d.Hosts {
			if hasName(s.Base.Hostname(), host) {
				return d, Facts{Evidence: "host name " + host}, nil
			}
		}
	}
	p := prober{server: s, seen: map[string]*answer{}}
	var facts Facts
	for i, path := range probes {
		a, err := p.get(ctx, path)
		if err != nil && i == 0 {
			return Dialect{}, facts, fmt.Errorf("detect the server: %w", err)
		}
		if path == models {
			facts.Models = ids(a)
		}
		for _, d := range dialects {
			evidence, ok := p.speaks(ctx, &d, path)
			if !ok {
				continue
			}
			facts.Evidence = evidence
			d, facts = p.front(ctx, d, facts)
			return d, facts, p.err
		}
		if ctx.Err() != nil {
			return Dialect{}, facts, fmt.Errorf("detect the server: %w", context.Cause(ctx))
		}
	}
	var tried []string
	for _, path := range probes {
		what := "no answer"
		if a := p.seen[path]; a != nil {
			what = fmt.Sprintf("status %d", a.status)
		}
		tried = append(tried, path+" ("+what+")")
	}
	facts.Evidence = "no clue in GET " + strings.Join(tried, ", ")
	return mustBe(generic), facts, p.err
}

func hasName(host, name string) bool {
	host = strings.ToLower(host)
	if below, ok := strings.CutPrefix(name, "*"); ok {
		return strings.HasSuffix(host, below)
	}
	return host == name
}

func ids(a *answer) []string {
	list, _ := lookup(a.json(), "data", "")
	entries, _ := list.([]any)
	var out []string
	for _, e := range entries {
		if id, ok := lookup(e, "id", ""); ok {
			if name, ok := id.(string); ok {
				out = append(out, name)
			}
		}
	}
	return out
}

// prober asks each path once.
type prober struct {
	server *Server
	seen   map[string]*answer
	err    error // the context's, if it ended the probing
}

func (p *prober) get(ctx context.Context, path string) (*answer, error) {
	if a, ok := p.seen[path]; ok {
		return a, nil
	}
	a, err := p.server.get(ctx, path)
	if err != nil {
		if ctx.Err() != nil {
			p.err = errors.Join(p.err, err)
		}
		a = nil // a path that does not answer is no clue
	}
	p.seen[path] = a
	return a, err
}

// speaks looks for the clues of a dialect in the answer to one path.
func (p *prober) speaks(ctx context.Context, d *Dialect, path string) (evidence string, ok bool) {
	for i := range d.clues {
		c := &d.clues[i]
		if c.path != path || !c.fits(p.seen[path]) {
			continue
		}
		if c.and == nil {
			return c.String(), true
		}
		if a, err := p.get(ctx, c.and.path); err == nil && c.and.fits(a) {
			return c.String() + ", and " + c.and.String(), true
		}
	}
	return "", false
}

// front looks whether something stands in front of the engine that was found,
// and fills in the engine of a front end that was found.
func (p *prober) front(ctx context.Context, d Dialect, facts Facts) (Dialect, Facts) {
	for _, f := range dialects {
		if !slices.Contains(f.fronts, d.Name) {
			continue
		}
		for _, c := range f.clues {
			// The proxy's clue beside /v1/models costs a GET; its header is
			// enough.
			if c.path != models && f.Name != "nim" {
				continue
			}
			if _, err := p.get(ctx, c.path); err != nil {
				continue
			}
			evidence, ok := p.speaks(ctx, &f, c.path)
			if !ok {
				continue
			}
			facts.Evidence = evidence + "; behind it " + facts.Evidence
			facts.Engine = d.Name
			if f.Name == "nim" {
				f = f.WithEngine(d)
			}
			return f, facts
		}
	}
	if d.Name != "nim" {
		return d, facts
	}
	// From 2.0 on its series have the engine's prefix.
	if a, err := p.get(ctx, d.Metrics.Path); err == nil && a.ok() {
		for _, name := range d.fronts {
			e := mustBe(name)
			for _, c := range e.clues {
				if c.contains != "" && bytes.Contains(a.body, []byte(c.contains)) {
					facts.Engine = name
					return d.WithEngine(e), facts
				}
			}
		}
	}
	return d, facts
}
