// Package api is the HTTP API of the allocator: tasks, their workers and the leader.
// openapi.yaml describes it for programs, and a test compares both.
package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Errors of Tasks that are not failures.
var (
	// ErrExists reports that an item of this id exists already.
	ErrExists = errors.New("item exists already")
	// ErrNotFound reports that there is no item of this id.
	ErrNotFound = errors.New("no item of this id")
	// ErrChanged reports that the item's version does not meet the condition.
	ErrChanged = errors.New("item has another version")
	// ErrTooLarge reports that the store accepts no item of this size, though its
	// content is within MaxContent.
	ErrTooLarge = errors.New("item too large")
)

// MaxContent is the maximum size of a content in bytes.
const MaxContent = 1 << 20

// MaxID is the maximum length of an id in bytes. An id may be any text with three
// exceptions: a single slash, which no URL path can express, and one or two dots,
// which clients remove from URL paths.
const MaxID = 1024

// Item is a task.
type Item struct {
	ID        string
	Content   []byte
	Instances int // the number of workers to run the item, at least 1, or -1 if it is not wanted
	Rules     Rules
	// Version changes with the content and the settings, including settings that the
	// API does not expose. It consists of digits, letters and hyphens, and is not
	// empty. Create ignores it.
	Version string
}

// Rules say which workers may run an item, and what it takes; see orchestrator.Task.
type Rules struct {
	Requires   []string `json:"requires,omitempty"`
	MaxPerZone int      `json:"max_per_zone,omitempty"`
	Weight     int64    `json:"weight,omitempty"`
}

// Change describes the change that a Put makes to an item.
type Change struct {
	Content   []byte       // nil: unchanged
	Instances int          // 0: unchanged, or 1 if the item is new; -1: the item is not wanted
	Rules     func(*Rules) // changes some of them; nil: unchanged
	If        Condition
}

// Condition reports whether a write may be applied to an item of the given version,
// or if there is no item, to "". It is evaluated for the version that the write
// replaces. A nil Condition always holds.
type Condition func(version string) bool

// Holds reports whether c holds for version.
func (c Condition) Holds(version string) bool { return c == nil || c(version) }

// Tasks stores the tasks.
//
// # Concurrency
//
// All methods are called from many goroutines at the same time.
//
// # Errors
//
// [ErrExists], [ErrNotFound], [ErrChanged] and [ErrTooLarge] have the meaning that
// they document. Any other error means that the store failed.
type Tasks interface {
	// Create adds an item with a new id, and returns it with its version.
	Create(ctx context.Context, item Item) (Item, error)
	// Put changes an item, or adds it, and returns the stored item. Fields that the
	// change does not set stay, even if other calls change the item at the same
	// time. Put returns ErrNotFound if the item does not exist and the change has no
	// content. It returns ErrChanged if the condition does not hold.
	Put(ctx context.Context, id string, c Change) (stored Item, created bool, err error)
	Get(ctx context.Context, id string) (Item, error)
	// List returns up to limit ids after the given one, in an order that never changes.
	List(ctx context.Context, after string, limit int) ([]string, error)
	// Delete deletes an item. It returns ErrChanged if the condition does not hold.
	Delete(ctx context.Context, id string, c Condition) error
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
	Tasks   Tasks
	Cluster Cluster
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
	// Limits limits the time and memory of requests.
	Limits Limits
	// Logger receives the details that clients do not get. Nil: nothing is logged.
	Logger *slog.Logger
}

// Limits limits how long a client may take, and how much memory all requests may
// hold together. Zero means the default given for each field.
type Limits struct {
	Header time.Duration // to send the header of a request: 5 s
	Body   time.Duration // to send the whole request: 30 s
	Answer time.Duration // to read the answer: 60 s
	// Stall is how long a client may take to send any part of a content, or to read
	// the next 16 KiB of an answer: 10 s.
	Stall time.Duration
	// Memory is the number of bytes that all requests may hold together, one half
	// for contents from clients, one half for data read from the store: 64 MiB, at
	// least 32 MiB. The first 32 KiB of a content do not count. While a request waits
	// for memory, those give way of which the client has sent or read for 100 ms,
	// longest first. A request that gets no memory within 3 s is answered with 503.
	Memory int64
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Header: cmp.Or(l.Header, 5*time.Second),
		Body:   cmp.Or(l.Body, 30*time.Second),
		Answer: cmp.Or(l.Answer, time.Minute),
		Stall:  cmp.Or(l.Stall, 10*time.Second),
		Memory: max(cmp.Or(l.Memory, 64<<20), 32<<20),
	}
}

// timeout is that of a request for the store, or for memory.
const timeout = 3 * time.Second

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
	c.Limits = c.Limits.withDefaults()
	a := &api{Config: c, received: newRoom(c.Limits.Memory / 2), read: newRoom(c.Limits.Memory / 2)}
	mux := http.NewServeMux()
	for path, methods := range a.routes() {
		mux.Handle(path, methods)
	}
	return a.guard(mux)
}

// NewServer returns a server of the API that disconnects slow clients.
func NewServer(c Config) *http.Server {
	l := c.Limits.withDefaults()
	return &http.Server{
		Handler:           New(c),
		ReadHeaderTimeout: l.Header,
		ReadTimeout:       l.Body,
		WriteTimeout:      l.Answer,
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
