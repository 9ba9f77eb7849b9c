package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/f8949c05/orchestrator/internal/backoff"
)

// scope is a part of the table that is listed and watched.
type scope string

const (
	scopeOwn     scope = "own"     // the table's record, and the caller's
	scopeMembers scope = "members" // the records of members
	scopeLeader  scope = "leader"  // all records of the leader
)

// selector returns the label selector of a scope.
func (s scope) selector(n names, self uint64) string {
	switch s {
	case scopeMembers:
		return fmt.Sprintf("%s=%s,%s=%s", labelTable, n.table, labelKind, kindMember)
	case scopeLeader:
		return fmt.Sprintf("%s=%s,%s in (%s,%s)", labelTable, n.table, labelKind, kindOrders, kindTasks)
	}
	return fmt.Sprintf("%s=%s,%s in (all,%016x)", labelTable, n.table, labelID, self)
}

// covers reports whether an object belongs to a scope.
func (s scope) covers(o *object, self uint64) bool {
	switch s {
	case scopeMembers:
		return o.kind == kindMember
	case scopeLeader:
		return o.kind == kindOrders || o.kind == kindTasks
	}
	return o.kind == kindTable || o.kind != kindTasks && o.id == self
}

// stream is the watch of a scope.
type stream struct {
	stop  context.CancelFunc
	ended chan struct{}
	open  atomic.Bool
	stale atomic.Bool // it has missed events, and ends
}

// begin watches a scope from a version on, until stop. It returns when the watch is open.
func (t *Table) begin(ctx context.Context, sc scope, version string) (*stream, error) {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	s, selector := &stream{stop: stop, ended: make(chan struct{})}, sc.selector(t.names, t.self)
	given := context.AfterFunc(ctx, stop)
	body, err := t.client.open(watching, selector, version)
	if !given() && err == nil {
		err = body.Close()
	}
	if err = cmp.Or(err, context.Cause(ctx)); err != nil {
		stop()
		return nil, err
	}
	event := func(kind string, l *lease) {
		switch version = l.Metadata.ResourceVersion; kind {
		case "BOOKMARK":
		case "DELETED":
			t.cache.do(func() { t.cache.drop(l.Metadata.Name, versionOf(l.Metadata)) })
		default:
			t.cache.learn(l)
		}
	}
	s.open.Store(true)
	go func() {
		defer close(s.ended)
		defer stop()
		for pauses := backoff.New(); watching.Err() == nil && !s.stale.Load(); { // the API server ends each watch after some time
			if err == nil {
				err = events(body, event)
				pauses.Reset()
			}
			s.open.Store(false)
			if s.stale.Store(isCode(err, http.StatusGone, http.StatusBadRequest)); pauses.Wait(watching) && !s.stale.Load() {
				body, err = t.client.open(watching, selector, version)
				s.open.Store(err == nil)
			}
		}
		t.cache.do(func() { t.cache.revision++; t.cache.wake() }) // the next call lists
	}()
	return s, nil
}

// end ends the watches of all scopes but some.
func (t *Table) end(but ...scope) {
	for sc, s := range t.streams {
		if !slices.Contains(but, sc) {
			s.stop()
			<-s.ended
			delete(t.streams, sc)
		}
	}
}

// ensure watches what a call shows, and lists what is not watched yet, or not any more: reports before
// orders. fresh: it lists everything.
func (t *Table) ensure(ctx context.Context, beats, follow, fresh bool) error {
	scopes := []scope{scopeMembers, scopeLeader, scopeOwn}
	if !follow {
		scopes = slices.Delete(scopes, 1, 2)
	}
	if !beats && !follow {
		scopes = scopes[1:]
	}
	t.end(scopes...)
	t.cache.do(func() { t.cache.follows = follow })
	if fresh && len(scopes) == 1 {
		if _, err := t.list(ctx, scopeMembers); err != nil {
			return err
		}
	}
	for _, sc := range scopes {
		s := t.streams[sc]
		watched := s != nil && !s.stale.Load()
		if watched && (sc == scopeOwn || s.open.Load() && !fresh) {
			continue
		}
		of, err := t.list(ctx, sc)
		if err == nil && !watched {
			if s, err = t.begin(ctx, sc, of.ResourceVersion); err == nil {
				t.streams[sc] = s
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list reads all of a scope.
func (t *Table) list(ctx context.Context, sc scope) (metadata, error) {
	all, of, err := t.client.list(ctx, sc.selector(t.names, t.self))
	if err != nil {
		return of, err
	}
	there := make(map[string]bool, len(all))
	for i := range all {
		there[all[i].Metadata.Name] = true
		t.cache.learn(&all[i])
	}
	t.cache.do(func() {
		for name, o := range t.cache.objects {
			if !there[name] && sc.covers(o, t.self) {
				t.cache.drop(name, versionOf(of))
			}
		}
	})
	return of, nil
}
