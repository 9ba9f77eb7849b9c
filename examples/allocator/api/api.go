package api

// What the API is made of, and what it needs.

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"
)

// What Tasks answers where it is no failure.
var (
	// ErrExists says that there is an item of this id.
	ErrExists = errors.New("there is an item of this id")
	// ErrNotFound says that there is no item of this id.
	ErrNotFound = errors.New("no item of this id")
	// ErrTooLarge says that what keeps the tasks takes no item of this size, though
	// it has no more than MaxContent.
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
	ID      string
	Content []byte
	// Instances is on how many workers it is to run. At least 1, but 0 in a Put,
	// which leaves them as they are, or makes them 1.
	Instances int
}

// Tasks is where the tasks are kept.
//
// # Concurrency
//
// All methods are called from many goroutines at once.
//
// # Errors
//
// [ErrExists], [ErrNotFound] and [ErrTooLarge] where their text is true; anything
// else says that it could not be done now.
type Tasks interface {
	// Create adds an item whose id is new.
	Create(ctx context.Context, item Item) error
	// Put adds or replaces an item, and returns it with its instances.
	Put(ctx context.Context, item Item) (stored Item, created bool, err error)
	Get(ctx context.Context, id string) (Item, error)
	// List returns up to limit items, those after the id given, in an order that
	// is always the same.
	List(ctx context.Context, after string, limit int) ([]Item, error)
	Delete(ctx context.Context, id string) error
}

// Worker is a worker and what it runs.
type Worker struct {
	Name  string
	State string   // ready or draining
	Tasks []string // sorted
}

// Cluster is who does the work. Its methods are called from many goroutines at
// once.
type Cluster interface {
	// Owners returns the names of the workers that run a task, sorted.
	Owners(id string) []string
	// Workers returns all workers, sorted by name.
	Workers(ctx context.Context) ([]Worker, error)
	// Leader returns who leads; no name where nobody does.
	Leader(ctx context.Context) (name string, epoch uint64, err error)
}

// Config is what a handler is made of.
type Config struct {
	Tasks   Tasks
	Cluster Cluster
	// Metrics answers /metrics.
	Metrics http.Handler
	// Token has clients show it as a bearer token, for all but /healthz and
	// /readyz. Empty: nobody is asked.
	Token string
	// Logger gets what clients are not told. Nil: nothing is logged.
	Logger *slog.Logger
}

// How long a request may wait for what is behind the API. Who asks whether it
// answers has little time himself.
const (
	patience      = 3 * time.Second
	readyPatience = time.Second
)

// api is the handlers' common ground.
type api struct {
	Config
}

// New returns the handler of the API.
func New(c Config) http.Handler {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	a := &api{Config: c}
	mux := http.NewServeMux()
	for path, methods := range a.routes() {
		mux.Handle(path, a.choose(path, methods))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.problem(w, r, http.StatusNotFound, "there is nothing at this address")
	})
	return a.guard(mux)
}

// methods is what there is at one path.
type methods map[string]http.HandlerFunc

func (a *api) routes() map[string]methods {
	return map[string]methods{
		"/work":      {http.MethodGet: a.listWork, http.MethodPost: a.postWork},
		"/work/{id}": {http.MethodGet: a.getWork, http.MethodPut: a.putWork, http.MethodDelete: a.deleteWork},
		"/workers":   {http.MethodGet: a.listWorkers},
		"/healthz":   {http.MethodGet: a.health},
		"/readyz":    {http.MethodGet: a.ready},
		"/metrics":   {http.MethodGet: a.Metrics.ServeHTTP},
	}
}
