// Package target knows the system under test: which dialect of the OpenAI API
// it speaks (Detect), which request fields it accepts (Preflight), the facts
// that a comparison of runs depends on (Conditions), and what it says of itself
// while a run goes on (Scraper).
//
// Nothing in it is part of a measurement: it asks before, beside and after.
package target

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tokmark/tokmark/bench/openai"
)

const (
	// defaultTimeout bounds one request for metadata or metrics.
	defaultTimeout = 5 * time.Second
	largestAnswer  = 16 << 20 // bytes of metadata or metrics
)

// Server is where the system under test is, and how to ask it. It is safe for
// concurrent use if its client is.
type Server struct {
	// Client carries the requests; nil: http.DefaultClient. Redirects are
	// never followed, so that Header stays with the server.
	Client *http.Client
	// Base is the address below which /v1/models lies. See Root.
	Base *url.URL
	// Header goes with each request. Its values never enter errors or answers.
	Header http.Header
	// Timeout bounds each request; 0: 5 s.
	Timeout time.Duration
}

// Root returns the address of the server that an endpoint belongs to: the URL
// without its path from /v1 (or the name of the API) on. Query values stay.
func Root(endpoint *url.URL) *url.URL {
	root := *endpoint
	root.Fragment, root.RawFragment, root.RawPath = "", "", ""
	path := "/" + strings.Trim(root.Path, "/")
	for _, t := range openai.EndpointTypes() {
		path = strings.TrimSuffix(path, strings.TrimPrefix(t.Path(), "/v1"))
	}
	path += "/"
	for _, mark := range []string{"/chat/completions/", "/completions/", "/v1/"} {
		if i := strings.LastIndex(path, mark); i >= 0 {
			path = path[:i+1]
		}
	}
	root.Path = strings.TrimRight(path, "/")
	return &root
}

// answer is what came of one GET.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a *answer) ok() bool { return a != nil && a.status == http.StatusOK }

// json returns the body as maps, slices, strings and json.Numbers, or nil.
func (a *answer) json() any {
	if !a.ok() {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(a.body))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

// at returns the address of a path, which may have a query of its own.
func (s *Server) at(path string) *url.URL {
	path, query, _ := strings.Cut(path, "?")
	u := *s.Base
	u.RawPath = ""
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	if query != "" {
		u.RawQuery = query
	}
	return &u
}

// get asks for a path below the base.
func (s *Server) get(ctx context.Context, path string) (*answer, error) {
	return fetch(ctx, s.Client, http.MethodGet, s.at(path), s.Header, nil, s.Timeout)
}

// fetch makes one bounded request. Its errors name neither headers nor query
// values.
func fetch(ctx context.Context, client *http.Client, method string, u *url.URL, header http.Header, body []byte, timeout time.Duration) (*answer, error) {
	where := method + " " + bare(u)
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no whole answer within %v", timeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, plainError(ctx, err))
	}
	if header != nil {
		req.Header = header.Clone()
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if client == nil {
		client = http.DefaultClient
	}
	once := *client
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := once.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, plainError(ctx, err))
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, largestAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, plainError(ctx, err))
	}
	if len(b) > largestAnswer {
		return nil, fmt.Errorf("%s: the answer is larger than %d MiB", where, largestAnswer>>20)
	}
	return &answer{status: resp.StatusCode, header: resp.Header, body: b}, nil
}

// plainError drops the URL that net/http puts into its errors, and tells our
// own limit in plain words.
func plainError(ctx context.Context, err error) error {
	var withURL *url.Error
	if errors.As(err, &withURL) {
		err = withURL.Err
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// bare is an address without what may be secret: user info and query values.
func bare(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// lookup follows a path such as "data[0].owned_by" into decoded JSON. In place
// of a number, [*] is the element that has the model's name, or the only one.
// It reports false where the path leads nowhere; a null is a value.
func lookup(v any, path, model string) (any, bool) {
	for part := range strings.SplitSeq(path, ".") {
		name, index, listed := strings.Cut(strings.TrimSuffix(part, "]"), "[")
		if name != "" {
			object, ok := v.(map[string]any)
			if !ok {
				return nil, false
			}
			if v, ok = object[name]; !ok {
				return nil, false
			}
		}
		if !listed {
			continue
		}
		list, ok := v.([]any)
		if !ok {
			return nil, false
		}
		i, err := strconv.Atoi(index)
		if index == "*" {
			i, err = ofModel(list, model), nil
		}
		if err != nil || i < 0 || i >= len(list) {
			return nil, false
		}
		v = list[i]
	}
	return v, true
}

func ofModel(list []any, model string) int {
	for i, e := range list {
		object, _ := e.(map[string]any)
		for _, key := range []string{"id", "model", "name"} {
			if name, ok := object[key].(string); ok && name == model {
				return i
			}
		}
	}
	if len(list) == 1 && model == "" {
		return 0
	}
	return -1
}
