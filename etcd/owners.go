package etcd

// Owners: who runs a task, for clients.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Owner is a worker that has claimed a task. It runs it, is about to, or is
// stopping it.
type Owner struct {
	Worker string
	Token  uint64 // rises with each new owner of the task: the revision of the claim
}

// Owners tells who runs what, from a local copy that one watch keeps up to date.
// It is as old as etcd's news take to come; who must not act on old news compares
// tokens.
//
// Its methods may be called from many goroutines at once; only one may be in Run.
type Owners struct {
	settings
	client *clientv3.Client

	mu       sync.Mutex
	byTask   map[string][]Owner // sorted by worker; slices are never changed
	loaded   chan struct{}
	isLoaded bool
	watchers map[*ownerWatch]struct{}
}

// NewOwners returns a copy that is empty until Run has filled it.
func NewOwners(c *clientv3.Client, opts ...Option) (*Owners, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, fmt.Errorf("new owners: %w", err)
	}
	return &Owners{
		settings: s, client: c,
		byTask: make(map[string][]Owner), loaded: make(chan struct{}), watchers: make(map[*ownerWatch]struct{}),
	}, nil
}

// Run keeps the copy up to date. It returns ctx's cause, [ErrForeignPrefix], or what
// etcd has against the client's user at the first contact, and lives through
// everything else; what is known when it returns stays.
func (o *Owners) Run(ctx context.Context) error {
	if err := o.await(ctx, o.client); err != nil {
		return fmt.Errorf("owners: %w", err)
	}
	from, end := mirror.Prefix(o.layout.ActivePrefix())
	m := mirror.New(o.client, mirror.Options{
		From: from, End: end, Logger: o.logger,
		Keep: func(string) bool { return false },
	})
	for {
		err := m.Run(ctx, func(_ mirror.At, changes []mirror.Change) { o.apply(changes) })
		if !errors.Is(err, mirror.ErrCluster) {
			return err
		}
	}
}

// Loaded is closed once Run has read everything for the first time.
func (o *Owners) Loaded() <-chan struct{} { return o.loaded }

// Of returns who has a task, sorted by worker; nobody before Loaded. It never
// blocks. The slice must not be changed.
func (o *Owners) Of(task string) []Owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byTask[task]
}

// All returns who has what: all tasks that somebody has. The map is the
// caller's, its slices must not be changed.
func (o *Owners) All() map[string][]Owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.byTask)
}

// Watch calls f with every task that somebody has, and then with each whose
// owners have changed, until ctx ends, and returns its cause. While f runs,
// changes add up: a task that changes several times comes once, as it is then.
// f is called from the goroutine of the caller, and must not change the slice.
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

// ownerWatch is a call of Watch: what it has not been told yet. It is guarded by
// the lock of its Owners.
type ownerWatch struct {
	dirty map[string]struct{}
	wake  chan struct{}
}

func (w *ownerWatch) mark(task string) {
	w.dirty[task] = struct{}{}
	select {
	case w.wake <- struct{}{}:
	default: // it is awake already
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
