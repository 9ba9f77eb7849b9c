package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator/internal/backoff"
)

// lease is a Lease of coordination.k8s.io/v1, as far as it is used.
type lease struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       spec     `json:"spec"`
}

type metadata struct {
	Name            string            `json:"name"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
	ManagedFields   []struct{}        `json:"managedFields,omitempty"`
}

// spec is for people: kubectl shows it.
type spec struct {
	HolderIdentity       string `json:"holderIdentity,omitempty"`
	LeaseDurationSeconds int    `json:"leaseDurationSeconds,omitempty"`
	RenewTime            string `json:"renewTime,omitempty"`
}

// versionOf returns the number of a resourceVersion. They rise with every change of any Lease.
func versionOf(m metadata) uint64 {
	n, _ := strconv.ParseUint(m.ResourceVersion, 10, 64)
	return n
}

// methods has the HTTP methods of the verbs that a Role permits.
var methods = map[string]string{
	"get": http.MethodGet, "list": http.MethodGet, "watch": http.MethodGet, "create": http.MethodPost, "update": http.MethodPut, "delete": http.MethodDelete,
}

const (
	maxAnswer = 256 << 20 // bytes
	maxEvent  = 2 << 20   // bytes
	parallel  = 8         // requests of one call at the same time
)

// client makes requests for the Leases of a namespace.
type client struct {
	config   Config
	url      string // of the Leases
	http     *http.Client
	patience atomic.Int64              // how long a request that is not permitted is repeated, in nanoseconds
	refused  atomic.Pointer[time.Time] // since when requests are; nil: a call has succeeded since
}

func newClient(c Config) *client {
	connections := &http.Transport{ // its own, which notice that the server is away
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: c.TLS.Clone(), ForceAttemptHTTP2: true, MaxIdleConnsPerHost: parallel,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second},
	}
	base := strings.TrimRight(c.URL, "/") + "/apis/coordination.k8s.io/v1/namespaces/" + url.PathEscape(c.Namespace) + "/leases"
	return &client{config: c, url: base, http: &http.Client{Transport: connections}}
}

// statusError is an answer of the API server that is not a success.
type statusError struct {
	what    string
	Code    int
	Reason  string
	Message string
	Details struct{ Kind string }
	after   time.Duration // before the request is repeated; 0: it is not
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: %d %s: %.500s", e.what, e.Code, e.Reason, strings.Join(strings.Fields(e.Message), " "))
}

// isCode reports whether err is an answer with one of these codes. An answer that a namespace does not
// exist has none.
func isCode(err error, codes ...int) bool {
	e, ok := errors.AsType[*statusError](err)
	return ok && e.Details.Kind != "namespaces" && slices.Contains(codes, e.Code)
}

// isConflict reports whether a Lease is not what a request was made from.
func isConflict(err error) bool { return isCode(err, http.StatusConflict, http.StatusNotFound) }

// call makes a request and decodes the answer. One that is not permitted is repeated for a third of a
// lease, because an API server that begins has not loaded its Roles; one for which the server is too
// busy until ctx ends.
func (c *client) call(ctx context.Context, verb, path string, body, answer any) error {
	for {
		resp, err := c.send(ctx, verb, path, body)
		if err == nil {
			defer func() { _ = resp.Body.Close() }()
			err = json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(answer)
			return c.explain(ctx, verb, err)
		}
		if e, ok := errors.AsType[*statusError](err); !ok || e.after == 0 || !backoff.Sleep(ctx, e.after) {
			return c.explain(ctx, verb, err)
		}
	}
}

// send makes a request once. The caller closes the answer's body.
func (c *client) send(ctx context.Context, verb, path string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, methods[verb], c.url+path, content)
	if err != nil {
		return nil, err
	}
	token := []byte(c.config.Token)
	if c.config.TokenFile != "" {
		if token, err = os.ReadFile(c.config.TokenFile); err != nil {
			return nil, fmt.Errorf("read the token: %w", err)
		}
	}
	if token = bytes.TrimSpace(token); len(token) > 0 {
		req.Header.Set("Authorization", "Bearer "+string(token))
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "orchestrator-replica")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	name, _, _ := strings.Cut(path, "?")
	e := &statusError{}
	if answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10)); err != nil || json.Unmarshal(answer, e) != nil {
		e.Message = string(answer)
	}
	switch e.what, e.Code = verb+" leases"+name, resp.StatusCode; e.Code {
	case http.StatusUnauthorized, http.StatusForbidden:
		now := time.Now()
		c.refused.CompareAndSwap(nil, &now)
		if now.Sub(*cmp.Or(c.refused.Load(), &now)) < time.Duration(cmp.Or(c.patience.Load(), int64(defaultLease/3))) {
			e.after = 200 * time.Millisecond
		}
	case http.StatusTooManyRequests:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		e.after = min(max(time.Duration(seconds)*time.Second, 100*time.Millisecond), time.Minute)
	}
	return nil, e
}

// explain returns err in one line that says what to do.
func (c *client) explain(ctx context.Context, verb string, err error) error {
	e, ok := errors.AsType[*statusError](err)
	switch {
	case err == nil, !ok && ctx.Err() == nil:
		return err
	case !ok:
		return fmt.Errorf("%s leases at %s: %w", verb, c.config.URL, context.Cause(ctx))
	case e.Details.Kind == "namespaces" && e.Code == http.StatusNotFound:
		return fmt.Errorf("namespace %s does not exist, create it: kubectl create namespace %[1]s: %w", c.config.Namespace, err)
	case e.after > 0 && e.Code != http.StatusTooManyRequests:
		return fmt.Errorf("the API server at %s refuses a request with code %d, it is repeated", c.config.URL, e.Code)
	case e.Code == http.StatusUnauthorized:
		return fmt.Errorf("the API server does not know the token, see the service account of the pod, or TokenFile and Token of Config: %w", err)
	case e.Code == http.StatusForbidden:
		return fmt.Errorf("the Role lacks the verb %s, it needs get, list, watch, create, update and delete for leases of coordination.k8s.io in namespace %s: %w",
			verb, c.config.Namespace, err)
	}
	return err
}

// get returns a Lease, or nil if it does not exist.
func (c *client) get(ctx context.Context, name string) (*lease, error) {
	var l lease
	if err := c.call(ctx, "get", "/"+name, nil, &l); !isCode(err, http.StatusNotFound) {
		return &l, err
	}
	return nil, nil
}

// list returns the Leases that a selector selects, and the version as of which it does.
func (c *client) list(ctx context.Context, selector string) (all []lease, of metadata, err error) {
	var answer struct {
		Metadata metadata
		Items    []lease
	}
	err = c.call(ctx, "list", "?"+url.Values{"labelSelector": {selector}}.Encode(), nil, &answer)
	return answer.Items, answer.Metadata, err
}

// put creates a Lease, or replaces it if it has a UID: a Lease with another one, or another version, is
// a conflict. Without the UID a Lease that was deleted would be created.
func (c *client) put(ctx context.Context, l *lease) (*lease, error) {
	l.APIVersion, l.Kind = "coordination.k8s.io/v1", "Lease"
	l.Metadata.ManagedFields = []struct{}{{}} // none: they make events a third larger
	verb, path := "create", ""
	if l.Metadata.UID != "" {
		verb, path = "update", "/"+l.Metadata.Name
	}
	var stored lease
	err := c.call(ctx, verb, path, l, &stored)
	return &stored, err
}

// delete deletes a Lease, unless it has changed.
func (c *client) delete(ctx context.Context, m metadata) error {
	conditions := map[string]string{"uid": m.UID, "resourceVersion": m.ResourceVersion}
	return c.call(ctx, "delete", "/"+m.Name, map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}, &struct{}{})
}

// open begins to watch the Leases that a selector selects, for changes after a version.
func (c *client) open(ctx context.Context, selector, version string) (io.ReadCloser, error) {
	query := url.Values{"labelSelector": {selector}, "resourceVersion": {version}, "watch": {"1"}, "allowWatchBookmarks": {"true"}}
	resp, err := c.send(ctx, "watch", "?"+query.Encode(), nil)
	if err != nil {
		return nil, c.explain(ctx, "watch", err)
	}
	return resp.Body, nil
}

// events calls event for each change until the API server ends the watch.
func events(body io.ReadCloser, event func(kind string, l *lease)) error {
	defer func() { _ = body.Close() }()
	bounded := &io.LimitedReader{R: body}
	for d := json.NewDecoder(bounded); ; {
		bounded.N = maxEvent // each
		var e struct {
			Type   string
			Object struct {
				lease
				Code            int
				Reason, Message string
			}
		}
		if err := d.Decode(&e); err != nil {
			return err
		}
		if e.Type == "ERROR" {
			return &statusError{what: "watch leases", Code: e.Object.Code, Reason: e.Object.Reason, Message: e.Object.Message}
		}
		event(e.Type, &e.Object.lease)
	}
}
