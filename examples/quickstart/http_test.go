package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/communicatortest"
	"github.com/f8949c05/orchestrator/worker"
)

// The test that a user would write for a new transport: real workers behind the real
// handler, with switches at the arrival of writes.
func TestCommunicatorKeepsItsContract(t *testing.T) {
	communicatortest.Run(t, func(t *testing.T) communicatortest.Cluster[member, endpoint] {
		w1, w2 := newRemote(t, "w1"), newRemote(t, "w2")
		remotes := map[member]*remote{w1.member: w1, w2.member: w2}
		return communicatortest.Cluster[member, endpoint]{
			Communicator: testCommunicator(t),
			Workers:      []member{w1.member, w2.member},
			Tasks:        []endpoint{{"a", "http://a/"}, {"b", "http://b/"}, {"c", "http://c/"}},
			UnknownWorkers: []member{
				{Name: "predecessor", URL: w1.URL[:strings.LastIndex(w1.URL, "/")] + "/1"},
				{Name: "none", URL: "http://127.0.0.1:1/none/1"},
			},
			Timeout: time.Second,
			Hold:    func(m member) func() { return remotes[m].hold() },
			Cut:     func(m member) func() { return remotes[m].cut() },
			Refuse:  func(m member, e endpoint) func() { return remotes[m].refuse(e) },
			Linger:  func(m member, e endpoint) func() { return remotes[m].linger(e) },
			Pin:     func(m member, e endpoint) func() { return remotes[m].pin(e) },
			Restart: func(m member) member { return remotes[m].restart() },
		}
	})
}

func testCommunicator(t *testing.T) communicator {
	c := newCommunicator()
	t.Cleanup(c.client.CloseIdleConnections)
	return c
}

// remote is a worker behind its handler, with a runner in between that can hold
// writes back and refuse tasks. Its tasks are jobs, and movable unless they are pinned.
type remote struct {
	member
	restart func() member // replaces the process

	mu      sync.Mutex
	held    chan struct{} // closed by release; nil: writes are not held
	waiting sync.WaitGroup
	off     chan struct{} // closed by heal; nil: not cut off
	refused map[endpoint]bool
	lingers map[endpoint]chan struct{} // closed when the task may stop
	pins    map[endpoint]chan struct{} // closed when the job may move
	handler http.Handler
	starts  atomic.Int64
}

func newRemote(t *testing.T, name string) *remote {
	r := &remote{
		refused: make(map[endpoint]bool), lingers: make(map[endpoint]chan struct{}), pins: make(map[endpoint]chan struct{}),
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		off, handler := r.off, r.handler
		r.mu.Unlock()
		if off != nil {
			<-off
			return // closes the connection: the call did not get through
		}
		handler.ServeHTTP(w, req)
	}))
	t.Cleanup(srv.Close)
	start := func() member {
		w, err := worker.New(r.run, worker.WithCompletion(func(endpoint) {}))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, w.Close(context.WithoutCancel(t.Context()))) })
		path := fmt.Sprintf("/%s/%d", name, w.Incarnation())
		r.mu.Lock()
		defer r.mu.Unlock()
		r.handler = newHandler(path, incarnation{r, w})
		return member{Name: name, URL: srv.URL + path}
	}
	r.member, r.restart = start(), start
	return r
}

// run is the function of every task. It ends when it is told to, but not while it lingers.
func (r *remote) run(ctx context.Context, e endpoint) error {
	r.starts.Add(1)
	r.mu.Lock()
	pinned := r.pins[e]
	r.mu.Unlock()
	if pinned == nil {
		worker.Movable(ctx)
	}
	select {
	case <-pinned:
		worker.Movable(ctx)
		<-ctx.Done()
	case <-ctx.Done():
	}
	r.mu.Lock()
	lingers := r.lingers[e]
	r.mu.Unlock()
	if lingers != nil {
		<-lingers
	}
	return nil
}

// incarnation is a process of a remote.
type incarnation struct {
	*remote
	worker runner
}

func (i incarnation) List(ctx context.Context) ([]endpoint, error) { return i.worker.List(ctx) }

func (i incarnation) Add(ctx context.Context, e endpoint) error {
	i.mu.Lock()
	refused := i.refused[e]
	i.mu.Unlock()
	if refused {
		return fmt.Errorf("%w: no room", orchestrator.ErrRejected)
	}
	return i.write(ctx, func(ctx context.Context) error { return i.worker.Add(ctx, e) })
}

func (i incarnation) Remove(ctx context.Context, e endpoint) error {
	return i.write(ctx, func(ctx context.Context) error { return i.worker.Remove(ctx, e) })
}

// write delivers a held write even if its caller no longer waits.
func (r *remote) write(ctx context.Context, call func(context.Context) error) error {
	r.mu.Lock()
	held := r.held
	if held != nil {
		r.waiting.Add(1)
	}
	r.mu.Unlock()
	if held == nil {
		return call(ctx)
	}
	defer r.waiting.Done()
	<-held
	return call(context.WithoutCancel(ctx))
}

func (r *remote) hold() (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := make(chan struct{})
	r.held = held
	return func() {
		r.mu.Lock()
		r.held = nil
		r.mu.Unlock()
		close(held)
		r.waiting.Wait()
	}
}

func (r *remote) cut() (heal func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	off := make(chan struct{})
	r.off = off
	return func() {
		r.mu.Lock()
		r.off = nil
		r.mu.Unlock()
		close(off)
	}
}

func (r *remote) refuse(e endpoint) (accept func()) {
	set := func(refused bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.refused[e] = refused
	}
	set(true)
	return func() { set(false) }
}

// pin makes a job not movable. It must be called before the job is added.
func (r *remote) pin(e endpoint) (unpin func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pinned := make(chan struct{})
	r.pins[e] = pinned
	return func() { close(pinned) }
}

// linger makes a task slow to stop.
func (r *remote) linger(e endpoint) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lingers := make(chan struct{})
	r.lingers[e] = lingers
	return func() { close(lingers) }
}

// Jobs that run are not moved to a worker that joins, and start once: their pins travel. If
// a relay on the way loses them, or the leader's end does not collect them, no job that
// runs is stopped either.
func TestC8_JobsThatRunAreNotMoved(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("lost ", lost), func(t *testing.T) {
			var comm orchestrator.Communicator[member, endpoint] = testCommunicator(t)
			if lost {
				comm = relay{comm}
			}
			o, err := orchestrator.New(comm)
			require.NoError(t, err)
			const jobs = 4
			first := newRemote(t, "w1")
			for i := range jobs {
				job := endpoint{Name: fmt.Sprint("job ", i)}
				first.pin(job)
				require.NoError(t, o.AddTask(job))
			}
			require.NoError(t, o.AddWorker(first.member))
			require.NoError(t, o.NextTerm(t.Context()))
			require.NoError(t, o.AddWorker(newRemote(t, "w2").member))
			var errs []error
			for range 3 {
				errs = append(errs, o.NextTerm(t.Context()))
			}
			if lost {
				require.ErrorContains(t, errors.Join(errs...), "the transport does not carry pins")
			} else {
				require.NoError(t, errors.Join(errs...))
			}
			tasks, err := testCommunicator(t).List(t.Context(), first.member)
			require.NoError(t, err)
			require.Len(t, tasks, jobs)
			require.EqualValues(t, jobs, first.starts.Load())
		})
	}
}

// relay calls List as a process would that passes calls on, but not the pins.
type relay struct {
	orchestrator.Communicator[member, endpoint]
}

func (r relay) List(ctx context.Context, m member) ([]endpoint, error) {
	fresh, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	if term, ok := orchestrator.TermFromContext(ctx); ok {
		fresh = orchestrator.ContextWithTerm(fresh, term)
	}
	return r.Communicator.List(fresh, m)
}

// Every error of the contract arrives unchanged, with its text.
func TestErrorsTravel(t *testing.T) {
	for _, want := range []error{
		orchestrator.ErrRejected, orchestrator.ErrStale, orchestrator.ErrStopping, orchestrator.ErrDeposed,
	} {
		srv := httptest.NewServer(newHandler("/w1/1", failing{fmt.Errorf("%w: because of this", want)}))
		defer srv.Close()
		c, m := testCommunicator(t), member{Name: "w1", URL: srv.URL + "/w1/1"}

		err := c.Add(t.Context(), m, endpoint{})
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, "because of this")
		for _, other := range []error{orchestrator.ErrStale, orchestrator.ErrStopping, orchestrator.ErrDeposed} {
			require.Equal(t, errors.Is(want, other), errors.Is(err, other), "%v as %v", want, other)
		}
		_, err = c.List(t.Context(), m)
		require.ErrorIs(t, err, want)
	}
}

// An unknown outcome is not reported as a refusal, and a refusal not as an unknown
// outcome.
func TestUnknownIsNotRejected(t *testing.T) {
	answer := make(chan http.HandlerFunc, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (<-answer)(w, r) }))
	defer srv.Close()
	c, m := testCommunicator(t), member{Name: "w1", URL: srv.URL}

	for name, h := range map[string]http.HandlerFunc{
		"a failure":      func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) },
		"another server": http.NotFound,
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
		"no answer":           func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"half an answer":      func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`[{"Name":"a"`)) },
		"an answer too long":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxMessage+1)) },
		"an empty object":     func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) },
		"null":                func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("null")) },
		"an answer that lies": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`"ok"`)) },
	} {
		answer <- h
		_, err := c.List(t.Context(), m)
		require.Error(t, err, name)
		require.NotErrorIs(t, err, orchestrator.ErrRejected, name)
	}

	srv.Close()
	c = testCommunicator(t) // without connections from before
	require.ErrorIs(t, c.Add(t.Context(), m, endpoint{}), orchestrator.ErrRejected, "no listener, so never sent")
}

func TestHandlerRefusesWhatItCannotRead(t *testing.T) {
	srv := httptest.NewServer(newHandler("/w1/1", failing{errors.New("must not be called")}))
	defer srv.Close()
	for name, change := range map[string]func(*http.Request){
		"an epoch that is not a number": func(r *http.Request) { r.Header.Set(epochHeader, "x") },
		"an epoch without a number":     func(r *http.Request) { r.Header.Set(epochHeader, "1") },
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/w1/1/add", strings.NewReader("{}"))
		require.NoError(t, err)
		change(req)
		require.Equal(t, http.StatusBadRequest, status(t, req), name)
	}
	for name, body := range map[string]string{
		"no JSON":  "add",
		"too long": strings.Repeat(" ", maxMessage) + "{}",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/w1/1/add", strings.NewReader(body))
		require.NoError(t, err)
		require.Equal(t, http.StatusBadRequest, status(t, req), name)
	}
}

func status(t *testing.T, req *http.Request) int {
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	return resp.StatusCode
}

// failing is a worker that answers every call with the same error.
type failing struct{ err error }

func (f failing) List(context.Context) ([]endpoint, error) { return nil, f.err }
func (f failing) Add(context.Context, endpoint) error      { return f.err }
func (f failing) Remove(context.Context, endpoint) error   { return f.err }
