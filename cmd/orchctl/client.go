package main

// Requests to a dashboard: which address is asked, who gets the token, and what a failure
// means.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator/dashboard/api"
)

// Bounds of what a server can make the client do.
const (
	maxAnswer = 4 << 20 // bytes, after decompression
	maxHops   = 3       // from an address to the leader
)

// client asks a dashboard. It must not be used concurrently.
type client struct {
	servers []*server       // of -server, in order
	last    *server         // answered last, so it is asked first; nil before the first answer
	silent  map[string]bool // by shown: gave no answer to this request, and is not asked again
	common  *http.Client
	timeout time.Duration
	token   string
	ownCA   bool // only -ca is trusted to certify servers
}

// server is an address of a dashboard.
type server struct {
	base  *url.URL
	http  *http.Client
	shown string
}

// dialer connects to an address. It is net.Dialer.DialContext outside of tests.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// newClient returns a client for the settings. It reads the files that they name.
func newClient(s *settings, dial dialer) (*client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	c := &client{timeout: s.timeout, ownCA: s.ca != ""}
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, fmt.Errorf("-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("-ca: %s has no certificate in PEM form", s.ca)
		}
	}
	if s.cert != "" || s.key != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, fmt.Errorf("-cert, -key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if s.tokenFile != "" {
		text, err := os.ReadFile(s.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("-token-file: %w", err)
		}
		c.token = strings.TrimSpace(string(text))
		if c.token == "" || strings.ContainsAny(c.token, "\r\n") {
			return nil, fmt.Errorf("-token-file: %s must have one line", s.tokenFile)
		}
	}
	c.common = newHTTP(dial, config)
	for address := range strings.SplitSeq(s.server, ",") {
		one, err := newServer(address)
		if err != nil {
			return nil, fmt.Errorf("-server: %w", err)
		}
		one.http = c.common
		if path, ok := strings.CutPrefix(address, "unix://"); ok {
			one.http = newHTTP(func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, "unix", path) }, config)
		}
		if c.token != "" && !s.insecure && !one.isPrivate() {
			return nil, fmt.Errorf("-server: %s would get the token where others can read it: use https, or give -insecure-token", one.shown)
		}
		c.servers = append(c.servers, one)
	}
	return c, nil
}

// isPrivate reports whether no other machine can read what is sent to s.
func (s *server) isPrivate() bool {
	host := s.base.Hostname()
	return s.base.Scheme == "https" || host == "localhost" || net.ParseIP(host).IsLoopback()
}

// newServer returns the server at an address, without its http.
func newServer(address string) (*server, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("%q is not an address such as https://host:port/path or unix:///run/x.sock", address)
	case u.Scheme == "unix" && u.Host == "" && u.Path != "":
		return &server{base: &url.URL{Scheme: "http", Host: "localhost"}, shown: api.Printable(address)}, nil
	case (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "":
		return &server{base: u, shown: api.Printable(strings.TrimSuffix(address, "/"))}, nil
	}
	return nil, fmt.Errorf("%q must begin with http://, https:// or unix:///", address)
}

// newHTTP returns a client that follows no redirects: an answer must come from an address
// that this package has chosen.
func newHTTP(dial dialer, config *tls.Config) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dial, TLSClientConfig: config,
			MaxResponseHeaderBytes: 64 << 10, // not HTTP/2, which hides why a connection failed
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// close closes the connections.
func (c *client) close() {
	c.common.CloseIdleConnections()
	for _, s := range c.servers {
		s.http.CloseIdleConnections()
	}
}

// reply is an answer, and what it says of itself.
type reply struct {
	api.Text
	body []byte
}

// read reads an answer as JSON.
func (c *client) read(ctx context.Context, method, route string, query url.Values, answer any) error {
	a, err := c.request(ctx, method, route, query, "application/json")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(a.body, answer); err != nil {
		return foreign(c.last, route, err)
	}
	return nil
}

// request asks the servers in turn until one leads, or leads to the leader, and returns its
// answer in a media type. The timeout bounds the whole, and the servers share it. The error of a server that
// answers, and is not merely without a leader, is final.
func (c *client) request(ctx context.Context, method, route string, query url.Values, accept string) (*reply, error) {
	end := time.Now().Add(c.timeout)
	servers := c.servers
	if c.last != nil {
		servers = []*server{c.last}
		for _, s := range c.servers {
			if s.shown != c.last.shown {
				servers = append(servers, s)
			}
		}
	}
	c.silent = make(map[string]bool)
	var failures []string
	for i, s := range servers {
		if c.silent[s.shown] {
			continue
		}
		within := time.Until(end) / time.Duration(len(servers)-i)
		share, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("no answer within %v; is the address right? (-timeout waits longer)", within.Round(time.Millisecond)))
		answer, err := c.follow(share, s, method, route, query, accept)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case exitCode(err) != exitUnreachable:
			return answer, err
		}
		failures = append(failures, err.Error())
	}
	if len(servers) > 1 {
		return nil, fail(exitUnreachable, "none of the %d servers leads: %s", len(servers), strings.Join(failures, "; "))
	}
	return nil, fail(exitUnreachable, "%s", failures[0])
}

// follow asks a server, or else the leader that it names.
func (c *client) follow(ctx context.Context, s *server, method, route string, query url.Values, accept string) (*reply, error) {
	said := ""
	for range maxHops {
		answer, leader, err := c.ask(ctx, s, method, route, query, accept)
		switch {
		case exitCode(err) == exitUnreachable:
			return nil, fail(exitUnreachable, "%s%w", said, err)
		case err != nil:
			return nil, err
		case leader == "":
			c.last = s
			return answer, nil
		}
		next, err := c.leader(s, leader)
		if err != nil {
			return nil, fail(exitUnreachable, "%s does not lead, and names a leader that cannot be asked: %w", s.shown, err)
		}
		if c.silent[next.shown] {
			return nil, fail(exitUnreachable, "%s says that %s leads", s.shown, next.shown)
		}
		said = fmt.Sprintf("%s says that %s leads; ", s.shown, next.shown)
		if next.shown == s.shown {
			break
		}
		s = next
	}
	return nil, fail(exitUnreachable, "%sno leader found; it may be changing, try again", said)
}

// leader returns the server with the address that s names as the leader's. An address
// without a scheme has that of s. Only -server can name a socket of this machine.
func (c *client) leader(s *server, address string) (*server, error) {
	if !strings.Contains(address, "://") {
		address = s.base.Scheme + "://" + address
	}
	next, err := newServer(address)
	if err != nil {
		return nil, err
	}
	for _, given := range c.servers {
		if given.shown == next.shown {
			return given, nil
		}
	}
	if strings.HasPrefix(address, "unix:") {
		return nil, fmt.Errorf("%s is not among the addresses of -server", next.shown)
	}
	next.http = c.common
	return next, nil
}

// mayHaveToken reports whether s is an address of -server, or proves by its certificate that
// the authority of -ca vouches for it.
func (c *client) mayHaveToken(s *server) bool {
	if c.ownCA && s.base.Scheme == "https" {
		return true
	}
	for _, given := range c.servers {
		if given.http == s.http && given.base.Scheme == s.base.Scheme && given.base.Host == s.base.Host {
			return true
		}
	}
	return false
}

// ask makes one request. If the server does not lead, it returns the address of the leader.
func (c *client) ask(ctx context.Context, s *server, method, route string, query url.Values, accept string) (answer *reply, leader string, err error) {
	u := s.base.JoinPath("api", "v1", route)
	u.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, "", fail(exitFailed, "%s: %w", s.shown, err)
	}
	request.Header.Set("Accept", accept)
	request.Header.Set("User-Agent", "orchctl")
	token := c.token != "" && c.mayHaveToken(s)
	if token {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := s.http.Do(request)
	if err != nil {
		c.silent[s.shown] = true
		return nil, "", unreachable(ctx, s, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, "", unreachable(ctx, s, err)
	case len(body) > maxAnswer:
		return nil, "", fail(exitFailed, "%s: the answer has more than %d bytes; it is no dashboard", s.shown, maxAnswer)
	case response.StatusCode == http.StatusOK:
		answer, err = decode(s, route, response, body)
		return answer, "", err
	}
	var problem api.Error
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind == "application/problem+json" {
		if err := json.Unmarshal(body, &problem); err != nil {
			problem = api.Error{}
		}
	}
	if problem.Leader != "" && response.StatusCode == http.StatusServiceUnavailable {
		return nil, problem.Leader, nil
	}
	return nil, "", c.refused(s, route, response, body, &problem, token)
}

// decode reads an answer. It recognizes other servers by what they lack: every answer to a
// GET has the time.
func decode(s *server, route string, response *http.Response, body []byte) (*reply, error) {
	a, about := &reply{body: body}, response.Header.Get(api.TextHeader)
	err := json.Unmarshal([]byte(cmp.Or(about, string(body))), &a.Text)
	switch {
	case err == nil && response.Request.Method == http.MethodGet && a.Now.IsZero():
		err = errors.New("it has no time")
	case err == nil && about == "" && response.Request.Header.Get("Accept") != "application/json":
		err = errors.New("it is not the text that was asked for; -o json may work")
	}
	if err != nil {
		return nil, foreign(s, route, err)
	}
	return a, nil
}

// foreign returns the error for an answer that cannot be read.
func foreign(s *server, route string, err error) error {
	return fail(exitFailed, "%s: the answer to %s is not that of a dashboard of this version (%s); is the address right?", s.shown, route, api.Printable(err.Error()))
}

// refused returns the error for an answer other than 200.
func (c *client) refused(s *server, route string, response *http.Response, body []byte, problem *api.Error, token bool) error {
	code, status := exitFailed, response.StatusCode
	text := strings.TrimSuffix(api.Printable(problem.Error()), ".")
	if text == "" {
		text = api.Printable(response.Status)
	}
	switch {
	case status == http.StatusUnauthorized && c.token == "":
		text += "; give the token with -token-file"
	case status == http.StatusUnauthorized && !token:
		text += "; the token was not sent, because the address is neither in -server nor https with -ca"
	case status == http.StatusUnauthorized:
		text += "; the token in -token-file is another"
	case status == http.StatusNotFound && problem.Type == api.TypeUnknownName:
		code = exitUnknown
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		text = fmt.Sprintf("no dashboard, or one of an older version without %s (%s); is the path in -server right?", route, text)
	case status == http.StatusServiceUnavailable, status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		code = exitUnreachable
	case status == http.StatusBadRequest && bytes.Contains(body, []byte("HTTP request to an HTTPS server")):
		text = "it speaks TLS: the address must begin with https://"
	case status >= 300 && status < 400:
		text = fmt.Sprintf("redirects to %s; is the address right?", api.Printable(response.Header.Get("Location")))
	case status == http.StatusTooManyRequests:
		return &exitError{exitFailed, fmt.Errorf("%s: %s: %w", s.shown, text, errBusy)}
	}
	return fail(code, "%s: %s", s.shown, text)
}

// errBusy is part of the error if the same request may succeed later.
var errBusy = errors.New("try again")

// unreachable returns the error for a request without an answer.
func unreachable(ctx context.Context, s *server, err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	text := api.Printable(err.Error())
	var verification *tls.CertificateVerificationError
	var dial *net.OpError
	switch {
	case ctx.Err() != nil:
		text = context.Cause(ctx).Error()
	case errors.As(err, &verification):
		text = api.Printable(verification.Err.Error()) + "; -ca names the authority that is trusted"
	case errors.As(err, &dial) && dial.Op == "dial":
		text = api.Printable(dial.Err.Error()) + "; does the process run, and is the address right?"
	case errors.Is(err, http.ErrSchemeMismatch):
		text = "it does not speak TLS: the address must begin with http://"
	case strings.Contains(text, "certificate required"):
		text = "it asks for a certificate: give one with -cert and -key"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		text = "the connection ended before the answer did"
	}
	return fail(exitUnreachable, "%s: %s", s.shown, text)
}
