package etcd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
)

// Owner is a worker that has claimed a task. The worker runs the task, is about to
// start it, or is stopping it.
type Owner struct {
	Worker string
	Token  uint64 // the revision of the claim; rises with each new owner of the task
}

// Owners reports which workers run which tasks, from a local copy that one watch
// keeps up to date. The copy lags behind etcd by the delivery time of the watch. A
// caller that must not act on stale data compares tokens.
//
// Its methods may be called from many goroutines at the same time, but only one
// goroutine may be in Run.
type Owners struct {
	preflight

	mu       sync.Mutex
	byTask   map[string][]Owner // sorted by worker; slices are never changed
	loaded   chan struct{}
	isLoaded bool
	watchers map[*ownerWatch]struct{}
}

// NewOwners returns an empty copy, which Run fills.
func NewOwners(c *clientv3.Client, opts ...Option) (*Owners, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, fmt.Errorf("new owners: %w", err)
	}
	return &Owners{
		preflight: preflight{settings: s, client: c},
		byTask:    make(map[string][]Owner), loaded: make(chan struct{}), watchers: make(map[*ownerWatch]struct{}),
	}, nil
}

// Run keeps the copy up to date. It returns the cause of ctx, [ErrForeignPrefix], or
// an error of etcd at the first contact that rejects the client's user. It survives
// all other errors. The copy remains readable after Run.
func (o *Owners) Run(ctx context.Context) error {
	if err := o.awaitContact(ctx); err != nil {
		return fmt.Errorf("owners: %w", err)
	}
	from, end := mirror.Prefix(o.layout.ActivePrefix())
	m := mirror.New(o.client, mirror.Options{
		From: from, End: end, Logger: o.logger,
		Keep: func(string) bool { return false },
	})
	return m.RunAcrossClusters(ctx, func(_ mirror.At, changes []mirror.Change) { o.apply(changes) })
}

// Loaded returns a channel that is closed once Run has read all claims for the first
// time.
func (o *Owners) Loaded() <-chan struct{} { return o.loaded }

// Of returns the owners of a task, sorted by worker, and none before Loaded. It
// never blocks. The caller must not change the slice.
func (o *Owners) Of(task string) []Owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byTask[task]
}

// All returns the owners of every claimed task. The map belongs to the caller, who
// must not change its slices.
func (o *Owners) All() map[string][]Owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.byTask)
}

// Watch calls f with every claimed task, then with each task whose owners have
// changed, until ctx ends, and returns the cause of ctx. Changes during a call of f
// are merged: a task that changes several times is reported once, with its latest
// owners. f is called from the caller's goroutine, and must not change the slice.
func (o *Owners) Watch(ctx context.Context, f func(task string, owners []Owner)) error {
	w := &ownerWatch{dirty: make(map[string]struct{}), wake: make(chan struct{}, 1)}
	o.mu.Lock()
	for task := range o.byTask {
		w.mark(task)
	}
	o.watchers[w] = struct{}{}
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		delete(o.watchers, w)
		o.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.wake:
		}
		o.mu.Lock()
		dirty := w.dirty
		w.dirty = make(map[string]struct{})
		o.mu.Unlock()
		for _, task := range slices.Sorted(maps.Keys(dirty)) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			f(task, o.Of(task))
		}
	}
}

// ownerWatch holds the changes that a call of Watch has not reported yet. The mutex
// of Owners guards it.
type ownerWatch struct {
	dirty map[string]struct{}
	wake  chan struct{}
}

func (w *ownerWatch) mark(task string) {
	w.dirty[task] = struct{}{}
	select {
	case w.wake <- struct{}{}:
	default: // a wake-up is pending
	}
}

func (o *Owners) apply(changes []mirror.Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, ch := range changes {
		kind, worker, task, _ := o.layout.Parse(ch.Key)
		if kind != keys.Active {
			continue
		}
		owners := slices.DeleteFunc(slices.Clone(o.byTask[task]), func(owner Owner) bool { return owner.Worker == worker })
		if ch.New != nil {
			owners = append(owners, Owner{Worker: worker, Token: uint64(ch.New.Create)})
			slices.SortFunc(owners, func(a, b Owner) int { return strings.Compare(a.Worker, b.Worker) })
		}
		if len(owners) == 0 {
			delete(o.byTask, task)
		} else {
			o.byTask[task] = owners
		}
		for w := range o.watchers {
			w.mark(task)
		}
	}
	if !o.isLoaded {
		o.isLoaded = true
		close(o.loaded)
	}
}
