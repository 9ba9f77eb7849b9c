package api

// What the API is made of, and what it needs.

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
)

// The answers of Tasks that are not failures.
var (
	// ErrExists reports that there is an item of this id.
	ErrExists = errors.New("there is an item of this id")
	// ErrNotFound reports that there is no item of this id.
	ErrNotFound = errors.New("no item of this id")
	// ErrChanged reports that the item's version does not meet the condition.
	ErrChanged = errors.New("the item is of another version")
	// ErrTooLarge reports that the store takes no item of this size, though it
	// has no more than MaxContent.
	ErrTooLarge = errors.New("the item is too large")
)

// MaxContent is how many bytes a content may have.
const MaxContent = 1 << 20

// MaxID is how many bytes an id may have. It may be any text but a single slash,
// which no address leads to, and one dot or two, which clients take out of an
// address.
const MaxID = 1024

// Item is a task.
type Item struct {
	ID        string
	Content   []byte
	Instances int // on how many workers it is to run, at least 1
	// Version changes with the content and with the settings, also with those that
	// the API does not know. It consists of digits, letters and hyphens, and is not
	// empty. Create ignores it.
	Version string
}

// Change says what a Put changes of an item.
type Change struct {
	Content   []byte // nil: stays as it is
	Instances int    // 0: stays as it is; 1 if the item is new
	If        Condition
}

// Condition reports whether a write may be done to an item of the version given;
// to none, if that is empty. It holds for the very version that the write
// replaces. A nil Condition always holds.
type Condition func(version string) bool

// Holds reports whether the condition holds.
func (c Condition) Holds(version string) bool { return c == nil || c(version) }

// Tasks is where the tasks are kept.
//
// # Concurrency
//
// All methods are called from many goroutines at once.
//
// # Errors
//
// [ErrExists], [ErrNotFound], [ErrChanged] and [ErrTooLarge] if their text is
// true; anything else says that it could not be done now.
type Tasks interface {
	// Create adds an item whose id is new, and returns it with its version.
	Create(ctx context.Context, item Item) (Item, error)
	// Put changes an item, or adds it, and returns it as it is then. Whatever the
	// change does not name stays as it is, also if others change it at the same
	// time. It returns ErrNotFound if there is no such item and the change has no
	// content, and ErrChanged if the condition does not hold.
	Put(ctx context.Context, id string, c Change) (stored Item, created bool, err error)
	Get(ctx context.Context, id string) (Item, error)
	// List returns up to limit items, those after the id given, in an order that
	// is always the same.
	List(ctx context.Context, after string, limit int) ([]Item, error)
	// Delete removes an item. It returns ErrChanged if the condition does not hold.
	Delete(ctx context.Context, id string, c Condition) error
}

// Worker is a worker and what it runs.
type Worker struct {
	Name  string
	State string   // ready or draining
	Tasks []string // sorted
}

// Waiting says why instances of a task run nowhere.
type Waiting struct {
	Instances int    `json:"instances"`
	Reason    string `json:"reason"`
	Worker    string `json:"worker,omitempty"` // the worker that the reason is about, or the one to ask
	Detail    string `json:"detail,omitempty"` // the latest failure
}

// Cluster is who does the work. Its methods are called from many goroutines at
// once.
type Cluster interface {
	// Owners returns the names of the workers that run a task, sorted.
	Owners(id string) []string
	// Waiting says why so many instances of a task are missing. It does not block.
	Waiting(id string, missing int) []Waiting
	// Workers returns all workers, sorted by name.
	Workers(ctx context.Context) ([]Worker, error)
	// Leader returns who leads; no name if none does.
	Leader(ctx context.Context) (name string, epoch uint64, err error)
}

// Config is what a handler is made of.
type Config struct {
	Tasks   Tasks
	Cluster Cluster
	// Metrics answers /metrics.
	Metrics http.Handler
	// Token is the bearer token that clients must show, for all but /healthz and
	// /readyz. Empty: none, and only requests to a loopback address or to one of
	// Hosts are answered.
	Token string
	// Hosts are the names, or IP addresses, in lower case and without a port, by
	// which clients may call the API without a token, besides those of loopback.
	// They keep out web pages that have their own name resolve to this machine.
	Hosts []string
	// Limits bounds the time and the memory of requests.
	Limits Limits
	// Logger gets what clients are not told. Nil: nothing is logged.
	Logger *slog.Logger
}

// Limits is how long a client may take, and how much memory all of them together.
// Zero: the default, which is said at each.
type Limits struct {
	Header time.Duration // to send a request's head: 5 s
	Body   time.Duration // to send all of a request: 30 s
	Answer time.Duration // to take the answer: 60 s
	// Stall is how long a client may take to send any part of a content, or to take
	// the next 16 KiB of an answer: 10 s.
	Stall time.Duration
	// Memory is how many bytes requests may hold together, one half for contents
	// that clients send, one half for what is read to answer them: 64 MiB, and at
	// least 32 MiB. A request for which there is no room within 3 s is a 503.
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

// How long a request may wait for the store, or for room. A caller that asks
// whether the store answers has little time itself.
const (
	patience      = 3 * time.Second
	readyPatience = time.Second
)

// api is the handlers' common ground.
type api struct {
	Config
	received *semaphore.Weighted // bytes of contents that clients send
	read     *semaphore.Weighted // bytes of what is read to answer them
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

// NewServer returns a server of the API that cuts slow clients off.
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

// methods is what there is at one path.
type methods map[string]route

// route is a handler, and the query parameters that it knows.
type route struct {
	handle http.HandlerFunc
	params []string // nil: it is not asked which
}

func (a *api) routes() map[string]methods {
	none := []string{}
	settings := []string{"instances"}
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
