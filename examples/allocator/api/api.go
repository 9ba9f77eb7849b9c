// Package api is the HTTP API of the allocator: tasks, their workers and the leader.
// openapi.yaml describes it for programs, and a test compares both.
package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
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
	// List returns up to limit items after the given id, in an order that never
	// changes.
	List(ctx context.Context, after string, limit int) ([]Item, error)
	// Delete deletes an item. It returns ErrChanged if the condition does not hold.
	Delete(ctx context.Context, id string, c Condition) error
}

// Worker is a worker and its tasks.
type Worker struct {
	Name  string
	State string   // ready or draining
	Tasks []string // sorted
}

// Waiting is a reason why instances of a task do not run.
type Waiting struct {
	Instances int    `json:"instances"`
	Reason    string `json:"reason"`
	Worker    string `json:"worker,omitempty"` // the worker that the reason concerns, or the leader to ask
	Detail    string `json:"detail,omitempty"` // the latest failure
}

// Cluster reports the workers and the leader. Its methods are called from many
// goroutines at the same time.
type Cluster interface {
	// Owners returns the names of the workers that run a task, sorted.
	Owners(id string) []string
	// Waiting returns the reasons for the given number of missing instances of a
	// task. It does not block.
	Waiting(id string, missing int) []Waiting
	// Workers returns all workers, sorted by name.
	Workers(ctx context.Context) ([]Worker, error)
	// Leader returns the leader; without a leader the name is empty.
	Leader(ctx context.Context) (name string, epoch uint64, err error)
}

// Config configures a handler.
type Config struct {
	Tasks   Tasks
	Cluster Cluster
	// Metrics serves /metrics.
	Metrics http.Handler
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
	// least 32 MiB. A request that gets no memory within 3 s is answered with 503.
	Memory int64
}

func (l Limits) withDefaults() Limits {
	or := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	or(&l.Header, 5*time.Second)
	or(&l.Body, 30*time.Second)
	or(&l.Answer, time.Minute)
	or(&l.Stall, 10*time.Second)
	if l.Memory == 0 {
		l.Memory = 64 << 20
	}
	l.Memory = max(l.Memory, 32<<20)
	return l
}

// Timeouts of a request for the store, or for memory. A readiness probe is expected
// to be fast, so its timeout is shorter.
const (
	timeout       = 3 * time.Second
	readyPatience = time.Second
)

// api holds the state that the handlers share.
type api struct {
	Config
	received *semaphore.Weighted // bytes of contents from clients
	read     *semaphore.Weighted // bytes of data read from the store
}

// New returns the handler of the API.
func New(c Config) http.Handler {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Limits = c.Limits.withDefaults()
	a := &api{
		Config:   c,
		received: semaphore.NewWeighted(c.Limits.Memory / 2),
		read:     semaphore.NewWeighted(c.Limits.Memory / 2),
	}
	mux := http.NewServeMux()
	for path, methods := range a.routes() {
		mux.Handle(path, a.choose(path, methods))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.problem(w, r, http.StatusNotFound, "there is nothing at this address")
	})
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

// route is a handler and its query parameters.
type route struct {
	handle http.HandlerFunc
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
		"/workers": {http.MethodGet: {a.listWorkers, none}},
		"/healthz": {http.MethodGet: {a.health, nil}},
		"/readyz":  {http.MethodGet: {a.ready, nil}},
		"/metrics": {http.MethodGet: {a.metrics, nil}},
	}
}
