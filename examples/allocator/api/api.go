// Package api is the HTTP API of the allocator: tasks, their workers and the leader.
// openapi.yaml describes it for programs, and a test compares both.
package api

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator/replica/etcd"
)

// MaxContent is the maximum size of a content in bytes.
const MaxContent = 1 << 20

// MaxID is the maximum length of an id in bytes. An id may be any text with three
// exceptions: a single slash, which no URL path can express, and one or two dots,
// which clients remove from URL paths.
const MaxID = 1024

// Registry stores the items, as [etcd.Registry] does. Errors that wrap neither etcd.ErrNotFound nor
// etcd.ErrChanged mean that the store failed. Its methods are called from many goroutines at the same time.
type Registry interface {
	Get(ctx context.Context, id string) (etcd.Item, error)
	List(ctx context.Context, after string, limit int) ([]etcd.Item, error)
	CompareAndPut(ctx context.Context, items ...etcd.Item) (int, error)
	CompareAndDelete(ctx context.Context, items ...etcd.Item) (int, error)
}

// Fleet is the workers, sorted by name, and the leader.
type Fleet struct {
	Workers []Worker
	Leader  string // empty: there is none
	Epoch   uint64
}

// Worker is a worker and its tasks.
type Worker struct {
	Name  string   `json:"name"`
	State string   `json:"state"` // ready or draining
	Tasks []string `json:"tasks"` // sorted, not nil
}

// Waiting is a reason why instances of a task do not run.
type Waiting struct {
	Instances int    `json:"instances"`
	Reason    string `json:"reason"`
	Worker    string `json:"worker,omitempty"` // the worker that the reason concerns
	Detail    string `json:"detail,omitempty"` // the latest failure
}

// Cluster reports the workers and the leader. Its methods are called from many
// goroutines at the same time.
type Cluster interface {
	// Owners returns the names of the workers that run a task, sorted.
	Owners(id string) []string
	// Waiting returns the reasons for the given number of missing instances of a
	// task.
	Waiting(id string, missing int) []Waiting
	// Fleet returns the workers and the leader.
	Fleet() (Fleet, error)
	// Ready returns an error if the store has not answered lately. It does not block.
	Ready() error
}

// Config configures a handler.
type Config struct {
	Registry Registry
	Cluster  Cluster
	// Admin serves /metrics and /dashboard/.
	Admin http.Handler
	// Token is the bearer token that clients must send, except for /healthz and
	// /readyz. Empty: no token is needed, but Host must be a loopback address or one
	// of Hosts.
	Token string
	// Hosts are names or IP addresses, in lower case and without a port, that are
	// accepted as Host without a token, in addition to loopback. They keep out web
	// pages whose own name resolves to this machine.
	Hosts []string
	// Logger receives the details that clients do not get. Nil: nothing is logged.
	Logger *slog.Logger
}

// How long a client may take: to send the header of a request, to send the whole request, to read
// the answer, and to send any part of a content or to read the next 16 KiB of an answer.
const (
	headerTime = 5 * time.Second
	bodyTime   = 30 * time.Second
	answerTime = time.Minute
	stallTime  = 10 * time.Second
)

// timeout is that of a request for the store, or for memory. Without memory the answer is 503.
const timeout = 3 * time.Second

// memory is the number of bytes that all requests may hold together for contents from clients, and
// again for data read from the store.
const memory = 32 << 20

// api holds the state that the handlers share.
type api struct {
	Config
	received *room // for contents from clients
	read     *room // for data read from the store
}

// New returns the handler of the API.
func New(c Config) http.Handler {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	a := &api{Config: c, received: newRoom(memory), read: newRoom(memory)}
	mux := http.NewServeMux()
	for path, methods := range a.routes() {
		mux.Handle(path, methods)
	}
	return a.guard(mux)
}

// NewServer returns a server of the API that disconnects slow clients.
func NewServer(c Config) *http.Server {
	return &http.Server{
		Handler:           New(c),
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       bodyTime,
		WriteTimeout:      answerTime,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}
}

// methods are the routes of one path.
type methods map[string]route

// route is a handler and its query parameters. The error of the handler is answered, unless
// the answer has begun.
type route struct {
	handle func(x *exchange) error
	params []string // nil: parameters are not checked
}

func (a *api) routes() map[string]methods {
	none := []string{}
	settings := []string{"instances", "requires", "max_per_zone", "weight"}
	return map[string]methods{
		"/work": {
			http.MethodGet:  {a.listWork, []string{"after"}},
			http.MethodPost: {a.postWork, settings},
		},
		"/work/{id}": {
			http.MethodGet:    {a.getWork, none},
			http.MethodPut:    {a.putWork, settings},
			http.MethodDelete: {a.deleteWork, none},
		},
		"/workers":    {http.MethodGet: {a.listWorkers, none}},
		"/healthz":    {http.MethodGet: {a.health, nil}},
		"/readyz":     {http.MethodGet: {a.ready, nil}},
		"/metrics":    {http.MethodGet: {a.admin, nil}},
		"/dashboard/": {http.MethodGet: {a.admin, nil}},
		"/":           {},
	}
}

// ServeHTTP dispatches by method. It serves HEAD as GET, and answers an unknown method with the
// allowed ones.
func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, _ := w.(*exchange) // made by guard
	x.r = r
	defer x.release()
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	route, ok := m[method]
	switch wrong := route.wrong(r.URL.RawQuery); {
	case len(m) == 0:
		x.fail(refuse(http.StatusNotFound, "there is nothing at this address"))
	case !ok:
		allowed := slices.Collect(maps.Keys(m))
		if m[http.MethodGet].handle != nil {
			allowed = append(allowed, http.MethodHead)
		}
		slices.Sort(allowed)
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		x.fail(refuse(http.StatusMethodNotAllowed, "this address allows %s", strings.Join(allowed, ", ")))
	case wrong != "":
		x.fail(refuse(http.StatusBadRequest, "%s", wrong))
	default:
		if err := route.handle(x); err != nil {
			x.fail(err)
		}
	}
}

// wrong returns what is wrong with a query, or "". A misspelled parameter is an
// error, because ignoring it could change the wrong thing.
func (p route) wrong(query string) string {
	if p.params == nil {
		return ""
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "invalid query: " + err.Error()
	}
	for name, all := range values {
		switch {
		case !slices.Contains(p.params, name):
			return fmt.Sprintf("unknown parameter %q: allowed are %q", name, p.params)
		case len(all) > 1:
			return fmt.Sprintf("%s is given %d times", name, len(all))
		}
	}
	return ""
}
