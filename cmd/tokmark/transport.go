package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/tokmark/tokmark/bench/transport"
)

// transportOptions say how the server is reached, before a run and in it.
type transportOptions struct {
	insecure          bool
	unixSocket, proxy string
	http2             bool
	kernelStamps      bool
	connectTimeout    time.Duration
	firstByteTimeout  time.Duration
}

func (o *transportOptions) bindTransport(fs *pflag.FlagSet) {
	fs.BoolVar(&o.insecure, "insecure", false, "accept any TLS certificate")
	fs.StringVar(&o.unixSocket, "unix-socket", "", "`path` of a Unix socket to connect to in place of the host in --url")
	fs.StringVar(&o.proxy, "proxy", "", "`URL` of a proxy (http, https, socks5) to go through; those of the environment are never used")
	fs.BoolVar(&o.http2, "http2", false, "speak HTTP/2 where an https server can: streams share a connection, so event times are our own")
	fs.BoolVar(&o.kernelStamps, "kernel-stamps", true, "take event times from the kernel, where it tells (Linux; TCP; HTTP/1.1)")
	fs.DurationVar(&o.connectTimeout, "connect-timeout", 10*time.Second, "limit on DNS and connect, and on TLS; 0: none")
	fs.DurationVar(&o.firstByteTimeout, "first-byte-timeout", 0, "limit on the wait for the first byte of the answer (a queue counts!); 0: none")
}

// validateTransport reports every fault of the settings.
func (o *transportOptions) validateTransport() error {
	proxy, err := o.proxyURL()
	errs := []error{err}
	if o.proxy != "" && o.unixSocket != "" {
		errs = append(errs, errors.New("--proxy and --unix-socket exclude each other"))
	}
	if proxy != nil && proxy.Scheme == "https" && o.http2 {
		errs = append(errs, errors.New("--http2 does not go through a proxy that is TLS itself: give an http or socks5 one"))
	}
	return errors.Join(errs...)
}

// proxyURL is the address of the proxy; nil: there is none.
func (o *transportOptions) proxyURL() (*url.URL, error) {
	if o.proxy == "" {
		return nil, nil
	}
	u, err := url.Parse(withScheme(o.proxy))
	if err != nil || u.Hostname() == "" || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) {
		return nil, fmt.Errorf("--proxy %s: give host:port, or an http, https or socks5 URL", maskURL(o.proxy))
	}
	return u, nil
}

// transport is the way to the server; the settings are valid.
func (o *transportOptions) transport() transport.Options {
	proxy, _ := o.proxyURL()
	return transport.Options{
		ConnectTimeout: o.connectTimeout, FirstByteTimeout: o.firstByteTimeout, Insecure: o.insecure,
		UnixSocket: o.unixSocket, Proxy: proxy, HTTP2: o.http2, NoKernelStamps: !o.kernelStamps,
	}
}
