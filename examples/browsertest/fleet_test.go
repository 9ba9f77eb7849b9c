//go:build browser

package browsertest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
	"github.com/f8949c05/orchestrator/dashboard"
)

// fleet is an orchestrator, its workers and its dashboard. Its terms run only when a test
// calls term, so the pages stay the same in between.
type fleet[W, T comparable] struct {
	*orchestrator.Orchestrator[W, T]
	t       *testing.T
	cluster *memory.Cluster[W, T]
	url     string // of the server, with a slash at the end

	refuse atomic.Pointer[func(worker W, task T) error] // starts
	gone   atomic.Bool                                  // the server closes every connection

	mu      sync.Mutex
	visited []string // the paths of all requests
}

// newFleet returns a fleet of workers without tasks. Its dashboard may drain workers. It is
// served at /, at /a/b/ and, by a handler that strips the prefix without the slash, at
// /ops/fleet/.
func newFleet[W, T comparable](t *testing.T, workers []W, opts ...dashboard.Option) *fleet[W, T] {
	t.Helper()
	browser(t)
	f := &fleet[W, T]{t: t}
	var err error
	f.cluster, err = memory.New[W, T](nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.cluster.Close(context.WithoutCancel(t.Context()))) })
	f.cluster.Refuse(func(op orchestrator.Op, worker W, task T) error {
		if refuse := f.refuse.Load(); refuse != nil && op == orchestrator.OpAdd {
			return (*refuse)(worker, task)
		}
		return nil
	})
	f.Orchestrator, err = orchestrator.New(f.cluster, orchestrator.WithSeed(1), orchestrator.WithEpoch(7),
		orchestrator.WithCommunicatorTimeout(patience), orchestrator.WithGracePeriod(300*time.Millisecond))
	require.NoError(t, err)
	for _, name := range workers {
		f.cluster.Start(name)
		require.NoError(t, f.AddWorker(name))
	}

	pages, err := dashboard.New(append(opts, dashboard.WithDrain(
		func(_ context.Context, worker W) error { return f.DrainWorker(worker) },
		func(_ context.Context, worker W) error { return f.UndrainWorker(worker) },
	))...)
	require.NoError(t, err)
	t.Cleanup(dashboard.Lead(pages, f))
	mux := http.NewServeMux()
	mux.Handle("/", pages)
	mux.Handle("/a/b/", http.StripPrefix("/a/b", pages))
	mux.Handle("/ops/fleet/", http.StripPrefix("/ops/fleet", pages))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.gone.Load() {
			panic(http.ErrAbortHandler) // closes the connection
		}
		f.mu.Lock()
		f.visited = append(f.visited, r.URL.Path)
		f.mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f.url = server.URL + "/"
	return f
}

// term runs terms, whatever fails in them.
func (f *fleet[W, T]) term(n int) {
	f.t.Helper()
	for range n {
		var failed *orchestrator.TermError
		if err := f.NextTerm(f.t.Context()); err != nil {
			require.ErrorAs(f.t, err, &failed)
		}
	}
}

// requests returns how many requests have come so far.
func (f *fleet[W, T]) requests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.visited)
}

// troubled returns a fleet of 12 workers and 300 tasks in which everything that the overview
// knows has happened.
func troubled(t *testing.T) *fleet[string, string] {
	t.Helper()
	var names []string
	for i := range 12 {
		names = append(names, fmt.Sprintf("worker-%02d", i+1))
	}
	f := newFleet[string, string](t, names, dashboard.WithTitle("browser tests"))
	for i := range 300 {
		require.NoError(t, f.AddTask(fmt.Sprintf("tenant-%03d", i), orchestrator.WithTaskInstances(1+i%20/19)))
	}
	trouble(f, names)
	return f
}

// small is like troubled, with 5 workers and 6 tasks, for tests that visit every page.
func small(t *testing.T) *fleet[string, string] {
	t.Helper()
	names := []string{"w1", "w2", "w3", "w4", "w5"}
	f := newFleet[string, string](t, names)
	for i := range 6 {
		require.NoError(t, f.AddTask(fmt.Sprint("t", i), orchestrator.WithTaskInstances(1+i%2)))
	}
	trouble(f, names)
	return f
}

// trouble makes the first worker silent, the second restart, the third refuse every start,
// the fourth drain, and the fifth be lost. One task cannot start anywhere, and one has too
// many instances.
func trouble(f *fleet[string, string], workers []string) {
	f.t.Helper()
	refuse := func(worker, task string) error {
		switch {
		case task == "poison":
			return fmt.Errorf("%w: schema version 9 is not known", orchestrator.ErrRejected)
		case worker == workers[2]:
			return fmt.Errorf("%w: no space left on device", orchestrator.ErrRejected)
		}
		return nil
	}
	f.term(1)
	f.refuse.Store(&refuse)
	f.cluster.Start(workers[1], workers[2]) // both have lost their tasks
	f.term(3)
	require.NoError(f.t, f.AddTask("poison"))
	require.NoError(f.t, f.AddTask("audit", orchestrator.WithTaskInstances(len(workers)+2)))
	f.term(3)
	f.cluster.Kill(workers[4])
	f.termUntil(func() bool { return f.state(workers[4]) == orchestrator.Lost })
	require.NoError(f.t, f.DrainWorker(workers[3]))
	f.term(2)
	f.termUntil(func() bool { // on a slow machine it may be lost at once
		f.cluster.Heal(workers[0])
		f.term(1)
		f.cluster.Cut(workers[0])
		f.term(1)
		return f.state(workers[0]) == orchestrator.Silent
	})
}

// termUntil runs terms until reached returns true.
func (f *fleet[W, T]) termUntil(reached func() bool) {
	f.t.Helper()
	until(f.t, func() bool {
		f.term(1)
		return reached()
	})
}

// until calls reached until it returns true. After too long, the test fails with the texts of
// whys.
func until(t *testing.T, reached func() bool, whys ...func() string) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !reached(); <-tick.C {
		if time.Now().After(deadline) {
			for _, why := range whys {
				t.Log(why())
			}
			t.Fatal("this takes too long")
		}
	}
}

// state returns the state of a worker, as the last term left it.
func (f *fleet[W, T]) state(name W) orchestrator.State {
	for _, w := range f.LastActual() {
		if w.Name == name {
			return w.State
		}
	}
	return 0
}
