package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/transport"
)

// server is the server before the run: is it there, and what does it serve?
type server struct {
	endpoint  *url.URL
	header    http.Header
	transport transport.Options
}

// modelList is the answer of /v1/models; why tells why there is none.
type modelList struct {
	url string
	ids []string
	why string
}

// models asks for the list of models. An error means that the server cannot be
// reached at all; a server without such a list is a list with a reason.
func (t *server) models(ctx context.Context) (modelList, error) {
	const limit = 30 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	u := modelsURL(t.endpoint)
	list := modelList{url: maskURL(u.String())}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return list, err
	}
	req.Header = t.header.Clone()
	tr := transport.New(t.transport)
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return list, t.unreachable(err)
	}
	defer resp.Body.Close()
	const most = 4 << 20
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	switch {
	case err != nil:
		list.why = err.Error()
	case resp.StatusCode == http.StatusBadRequest && strings.Contains(string(body), "HTTP request to an HTTPS server"):
		return list, fmt.Errorf("reach %s: the server speaks TLS: use https://%s", maskURL(t.endpoint.String()), t.endpoint.Host)
	case resp.StatusCode/100 == 3 && resp.Header.Get("Location") != "":
		list.why = "it answers " + resp.Status + ", to " + maskURL(resp.Header.Get("Location")) + ": redirects are not followed"
	case resp.StatusCode != http.StatusOK:
		list.why = "it answers " + resp.Status
	default:
		var models struct {
			Data []struct {
				ID string `json:"id"`
			} `json:"data"`
		}
		if err := json.Unmarshal(body, &models); err != nil {
			list.why = "its answer is no list of models"
			if text, page := openai.WebPage(resp.Header, body); page {
				list.why = text
			}
		}
		for _, m := range models.Data {
			list.ids = append(list.ids, m.ID)
		}
	}
	return list, nil
}

// unreachable says what is wrong and what to try.
func (t *server) unreachable(err error) error {
	var (
		where, option = maskURL(t.endpoint.String()), "--url"
		via           = t.transport.Via()
		proxy         *net.OpError
		dns           *net.DNSError
		timeout       net.Error
		noTLS         tls.RecordHeaderError
	)
	switch {
	case t.transport.UnixSocket != "":
		where, option = via, "--unix-socket"
	case errors.As(err, &proxy) && proxy.Op == "proxyconnect": // what net/http calls the way to a proxy
		where, option = "the proxy "+via, "--proxy"
	case via != "":
		where += " via " + via
	}
	switch text := err.Error(); {
	case errors.As(err, &noTLS) && option == "--proxy":
		return fmt.Errorf("reach %s: it does not speak TLS: give an http URL", where)
	case errors.As(err, &noTLS):
		return fmt.Errorf("reach %s: the server does not speak TLS: use http://%s", where, t.endpoint.Host)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("reach %s: nothing listens there (connection refused): is the server up, and %s right?", where, option)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("reach %s: nothing is there: is %s right?", where, option)
	case errors.As(err, &dns):
		return fmt.Errorf("reach %s: the host name %s is not known: is %s right?", where, dns.Name, option)
	case strings.Contains(text, "x509:") || strings.Contains(text, "certificate"):
		return fmt.Errorf("reach %s: %w (--insecure accepts any certificate)", where, err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("reach %s: no answer in time: %w", where, err)
	default:
		return fmt.Errorf("reach %s: %w", where, err)
	}
}

// only returns the model that is served, if there is just one.
func (l modelList) only() (string, error) {
	switch {
	case len(l.ids) == 1:
		return l.ids[0], nil
	case len(l.ids) > 1:
		ids := slices.Clone(l.ids)
		const shown = 10
		if len(ids) > shown {
			ids = append(ids[:shown], "…")
		}
		return "", fmt.Errorf("the server has several models: give one with --model: %s", strings.Join(ids, ", "))
	case l.why != "":
		return "", fmt.Errorf("ask %s for the model: %s: give one with --model", l.url, l.why)
	default:
		return "", fmt.Errorf("ask %s for the model: it lists none: give one with --model", l.url)
	}
}
