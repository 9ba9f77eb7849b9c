package communicatortest

// A transport over HTTP as a user writes it, and eight faults of which the kit finds
// each.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// fault is what is wrong with an own transport.
type fault string

const (
	errorAsEmpty   fault = "an error as empty"
	contextIgnored fault = "a context ignored"
	addBeforeDone  fault = "Add before done"
	removeEarly    fault = "Remove that returns early"
	lostTerm       fault = "a lost term"
	repeatedCall   fault = "a repeated call"
	othersAnswer   fault = "another worker's answer"
	noIncarnation  fault = "no incarnation"
	lostPins       fault = "lost pins"

	// Parts of the above.
	failureAsEmpty fault = "a failed call as empty"
	refusalAsEmpty fault = "the worker's error as empty"
	errorAsBefore  fault = "an error as the list before"
	listedTwice    fault = "each task twice in a list"
	lostListTerm   fault = "a lost term of List"
	lostAddTerm    fault = "a lost term of Add"
	lostRemoveTerm fault = "a lost term of Remove"
)

// address is a worker: the host that has its name, and its incarnation.
type address struct {
	Name, URL   string
	Incarnation uint64
}

func (a address) String() string { return a.Name }

// message is a call and its answer on the wire.
type message struct {
	Op, Task    string
	Incarnation uint64
	Term        *orchestrator.Term
	Pins        bool // the caller collects pins
	Tasks       []string
	Pinned      int
	Code        int // the index of an error below, from 1
	Err         string
}

var codes = []error{orchestrator.ErrDeposed, orchestrator.ErrStale, orchestrator.ErrRejected, orchestrator.ErrStopping, errors.New("failed")}

// ownClient is the leader's end.
type ownClient struct {
	broken  fault
	client  *http.Client
	answers chan message // of othersAnswer: in the order of their arrival
	left    *sync.WaitGroup
	lists   sync.Map // of errorAsBefore: the last list of each worker
	// previous is the write before, of repeatedCall.
	previous atomic.Pointer[message]
}

func (c *ownClient) List(ctx context.Context, to address) ([]string, error) {
	answer, err := c.call(ctx, to, message{Op: "list", Pins: orchestrator.Pin(ctx, 0)})
	switch failed := answer.Code == 0; {
	case err == nil:
	case c.broken == errorAsEmpty, failed && c.broken == failureAsEmpty, !failed && c.broken == refusalAsEmpty:
		return nil, nil
	case c.broken == errorAsBefore:
		before, _ := c.lists.Load(to)
		tasks, _ := before.([]string)
		return tasks, nil
	}
	c.lists.Store(to, answer.Tasks)
	if c.broken == listedTwice {
		answer.Tasks = slices.Concat(answer.Tasks, answer.Tasks)
	}
	if c.broken != lostPins {
		orchestrator.Pin(ctx, answer.Pinned)
	}
	return answer.Tasks, err
}

func (c *ownClient) Add(ctx context.Context, to address, task string) error {
	return c.write(ctx, to, message{Op: "add", Task: task})
}

func (c *ownClient) Remove(ctx context.Context, to address, task string) error {
	return c.write(ctx, to, message{Op: "remove", Task: task})
}

func (c *ownClient) write(ctx context.Context, to address, m message) error {
	_, err := c.call(ctx, to, m)
	if c.broken == repeatedCall {
		if again := c.previous.Swap(&m); again != nil { // an answer is missing, it believes
			_, _ = c.call(ctx, to, *again)
		}
	}
	return err
}

func (c *ownClient) call(ctx context.Context, to address, m message) (message, error) {
	m.Incarnation = to.Incarnation
	lost := map[fault]string{lostListTerm: "list", lostAddTerm: "add", lostRemoveTerm: "remove", lostTerm: m.Op}
	if term, ok := orchestrator.TermFromContext(ctx); ok && lost[c.broken] != m.Op {
		m.Term = &term
	}
	switch c.broken {
	case contextIgnored:
		ctx = context.WithoutCancel(ctx)
	case othersAnswer:
		if m.Op != "list" {
			break
		}
		c.left.Go(func() {
			if answer, err := c.exchange(context.WithoutCancel(ctx), to, m); err == nil {
				c.answers <- answer
			}
		})
		select {
		case answer := <-c.answers:
			return answer, answer.err()
		case <-ctx.Done():
			return message{}, context.Cause(ctx)
		}
	}
	answer, err := c.exchange(ctx, to, m)
	if err != nil {
		return message{}, err
	}
	return answer, answer.err()
}

func (m message) err() error {
	if m.Code == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", codes[m.Code-1], m.Err)
}

func (c *ownClient) exchange(ctx context.Context, to address, m message) (answer message, err error) {
	body, err := json.Marshal(m)
	if err != nil {
		return answer, err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	resp, err := c.client.Do(post)
	if err != nil {
		return answer, err
	}
	err = json.NewDecoder(resp.Body).Decode(&answer)
	return answer, errors.Join(err, resp.Body.Close())
}

// host is the worker's end: it serves the process that has its name.
type host struct {
	t      *testing.T
	name   string
	broken fault
	server *httptest.Server
	left   sync.WaitGroup // what is done after an answer

	mu      sync.Mutex
	worker  *worker.Worker[string]
	held    chan struct{} // closed by release; nil: writes are not held
	waiting sync.WaitGroup
	cut     chan struct{} // closed by heal; nil: not cut off
	refused map[string]bool
	lingers map[string]chan struct{} // closed when the task may stop
	pins    map[string]chan struct{} // closed when the task is not pinned any more
}

func newHost(t *testing.T, name string, broken fault) *host {
	h := &host{t: t, name: name, broken: broken, refused: make(map[string]bool), lingers: make(map[string]chan struct{}), pins: make(map[string]chan struct{})}
	h.start()
	h.server = httptest.NewServer(h)
	t.Cleanup(func() {
		h.server.Close()
		h.left.Wait()
	})
	return h
}

// start starts a process.
func (h *host) start() {
	w, err := worker.New(h.run, worker.WithCompletion(func(string) {}))
	require.NoError(h.t, err)
	h.set(func() { h.worker = w })
	h.t.Cleanup(func() { require.NoError(h.t, w.Close(context.WithoutCancel(h.t.Context()))) })
}

// restart replaces the process by another one, at the same address.
func (h *host) restart() address {
	ended := h.process()
	h.start()
	require.NoError(h.t, ended.Close(h.t.Context()))
	return h.address()
}

func (h *host) run(ctx context.Context, task string) error {
	h.mu.Lock()
	pinned := h.pins[task]
	h.mu.Unlock()
	if pinned == nil {
		worker.Movable(ctx)
	}
	select {
	case <-pinned:
		worker.Movable(ctx)
		<-ctx.Done()
	case <-ctx.Done():
	}
	h.mu.Lock()
	lingers := h.lingers[task]
	h.mu.Unlock()
	if lingers != nil {
		<-lingers
	}
	return nil
}

func (h *host) address() address {
	return address{Name: h.name, URL: h.server.URL, Incarnation: h.process().Incarnation()}
}

// ServeHTTP carries out a call.
func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m message
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	cut, held, refused := h.cut, h.held, h.refused[m.Task]
	if held != nil && m.Op != "list" {
		h.waiting.Add(1)
		defer h.waiting.Done()
	}
	h.mu.Unlock()
	if cut != nil {
		<-cut
		return
	}
	ctx := r.Context()
	if m.Term != nil {
		ctx = orchestrator.ContextWithTerm(ctx, *m.Term)
	}
	if h.broken != noIncarnation {
		ctx = worker.ContextWithIncarnation(ctx, m.Incarnation)
	}
	var answer message
	var err error
	switch {
	case m.Op == "list":
		if m.Pins {
			ctx = orchestrator.ContextWithPins(ctx, func(n int) { answer.Pinned = n })
		}
		answer.Tasks, err = h.process().List(ctx)
	case m.Op == "add" && refused:
		err = fmt.Errorf("%w: no room", orchestrator.ErrRejected)
	default:
		err = h.write(ctx, held, m)
	}
	if err != nil {
		answer.Err = err.Error()
		for i, code := range codes {
			if answer.Code == 0 && (errors.Is(err, code) || i == len(codes)-1) {
				answer.Code = i + 1
			}
		}
	}
	_ = json.NewEncoder(w).Encode(answer) // an error means that the caller no longer waits
}

func (h *host) process() *worker.Worker[string] {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.worker
}

func (h *host) write(ctx context.Context, held chan struct{}, m message) error {
	do := func(ctx context.Context) error {
		if held != nil {
			<-held
			ctx = context.WithoutCancel(ctx)
		}
		if m.Op == "add" {
			return h.process().Add(ctx, m.Task)
		}
		return h.process().Remove(ctx, m.Task)
	}
	if h.broken == addBeforeDone && m.Op == "add" || h.broken == removeEarly && m.Op == "remove" {
		if held != nil {
			h.waiting.Add(1)
		}
		h.left.Go(func() {
			if held != nil {
				defer h.waiting.Done()
			}
			_ = do(context.WithoutCancel(ctx))
		})
		return nil
	}
	return do(ctx)
}

// hold, cutOff, refuse and linger are the switches.

func (h *host) hold() (release func()) {
	held := make(chan struct{})
	h.set(func() { h.held = held })
	return func() {
		h.set(func() { h.held = nil })
		close(held)
		h.waiting.Wait()
	}
}

func (h *host) cutOff() (heal func()) {
	cut := make(chan struct{})
	h.set(func() { h.cut = cut })
	return func() {
		h.set(func() { h.cut = nil })
		close(cut)
	}
}

func (h *host) refuse(task string) (accept func()) {
	h.set(func() { h.refused[task] = true })
	return func() { h.set(func() { h.refused[task] = false }) }
}

func (h *host) linger(task string) (end func()) {
	lingers := make(chan struct{})
	h.set(func() { h.lingers[task] = lingers })
	return func() { close(lingers) }
}

func (h *host) pin(task string) (unpin func()) {
	pinned := make(chan struct{})
	h.set(func() { h.pins[task] = pinned })
	return func() { close(pinned) }
}

func (h *host) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// newOwn returns two workers of an own transport, with or without switches.
func newOwn(t *testing.T, broken fault, switches bool) Cluster[address, string] {
	w1, w2 := newHost(t, "w1", broken), newHost(t, "w2", broken)
	hosts := map[string]*host{"w1": w1, "w2": w2}
	var left sync.WaitGroup
	client := &ownClient{broken: broken, client: &http.Client{Transport: &http.Transport{}}, answers: make(chan message, 1000), left: &left}
	t.Cleanup(client.client.CloseIdleConnections)
	t.Cleanup(left.Wait)
	c := Cluster[address, string]{
		Communicator: client,
		Workers:      []address{w1.address(), w2.address()},
		Tasks:        []string{"a", "b", "c"},
		Timeout:      time.Second,
	}
	if switches {
		c.Hold = func(w address) func() { return hosts[w.Name].hold() }
		c.Cut = func(w address) func() { return hosts[w.Name].cutOff() }
		c.Refuse = func(w address, task string) func() { return hosts[w.Name].refuse(task) }
		c.Linger = func(w address, task string) func() { return hosts[w.Name].linger(task) }
		c.Pin = func(w address, task string) func() { return hosts[w.Name].pin(task) }
		c.Restart = func(w address) address { return hosts[w.Name].restart() }
	}
	return c
}

// TestOwnTransport: a correct one passes every check.
func TestOwnTransport(t *testing.T) {
	Run(t, func(t *testing.T) Cluster[address, string] { return newOwn(t, "", true) })
}

// TestFindsBrokenTransports has what the kit says of each fault: without any switch, or
// which switch it needs.
func TestFindsBrokenTransports(t *testing.T) {
	for _, c := range []struct {
		broken  fault
		check   string
		without string // what the check says without switches
		with    string // what it says with them; empty: the same
	}{
		{errorAsEmpty, "C6/ErrorIsNotEmpty", "C6: List(w1) with a context that was done before returned [] and no error, want an error, or [a b]: " +
			"an error that reads as an empty or old list makes the leader start tasks elsewhere, while they run", ""},
		{failureAsEmpty, "C6/ErrorIsNotEmpty", "C6: List(w1) with a context that was done before returned [] and no error", ""},
		{refusalAsEmpty, "C6/ErrorIsNotEmpty", "C6: List(w1) for a leader that has a successor returned [] and no error", ""},
		{
			contextIgnored, "C3/WhileHeld", "C3: not checked, because there is no Cluster.Hold: a write that takes effect after a later List",
			"C3: Add(w1, a) whose deadline passed while it was held back has not returned 1s after that, want it to end with its context",
		},
		{
			contextIgnored, "C3/WhileCut", "C3: not checked, because there is no Cluster.Cut: what calls to a worker that is cut off do",
			"C3: List for worker w1, which is cut off, has not returned 1s after it was cancelled, want it to end with its context",
		},
		{
			contextIgnored, "C3/WhileStopping", "C3: not checked, because there is no Cluster.Linger: a Remove that does not wait until its task has stopped",
			"C3: Remove(w1, a) whose deadline passed while the task stopped has not returned 1s after that, want it to end with its context",
		},
		{addBeforeDone, "C7/LowerEpoch", "C7: Add(w1, a) in epoch 2, term 10 was accepted, want an error that wraps ErrDeposed: " +
			"List carried a higher epoch", ""},
		{
			addBeforeDone, "C3/WhileHeld", "C3: not checked, because there is no Cluster.Hold",
			"C3: Add(w1, a) whose deadline passed while it was held back returned nil, but List returns [b]: want an error unless it was done (C5)",
		},
		{removeEarly, "C7/WriteWithoutTerm", "C7: Remove(w1, b) without a term was accepted, want an error that wraps ErrStale: " +
			"a term was seen before", ""},
		{
			removeEarly, "C7/RemoveWaits", "C7: not checked, because there is no Cluster.Linger",
			"C7: Remove(w1, a) in epoch 2, term 10 returned nil before the task had stopped, want it to wait or to fail (C5)",
		},
		{lostTerm, "C7/LowerEpoch", "C7: Add(w1, a) in epoch 2, term 10 was accepted, want an error that wraps ErrDeposed: " +
			"List carried a higher epoch", ""},
		{lostListTerm, "C7/LowerNumber", "C7: Add(w1, a) in epoch 2, term 10 was accepted", ""},
		{lostAddTerm, "C7/LowerNumber", "C7: Add(w1, b) in epoch 2, term 10 failed with", ""},
		{lostRemoveTerm, "C7/EqualTerm", "C7: Remove(w1, a) in epoch 2, term 10 failed with", ""},
		{repeatedCall, "C5/NotRepeated", "C5: List(w1) in epoch 2, term 10 returned [a], want []: " +
			"a was added once and then removed, and no call may be carried out again later", ""},
		{othersAnswer, "C1/GivenUp", "C1: ", ""}, // which answer is wrong first depends on the scheduler
		{
			noIncarnation, "C7/Successor", "C7: not checked, because there is no Cluster.Restart: a transport without incarnations",
			"C7: List(w1) returned [b] and no error, want an error: its process was replaced by another one of the same name, " +
				"and calls must not reach that one (an incarnation tells them apart)",
		},
		{
			lostPins, "C8/Pinned", "C8: not checked, because there is no Cluster.Pin: a transport that loses pins",
			"C8: List(w1) returned [b a], pinned [], held false, error no error, want [a] pinned (orchestrator.Pin, ContextWithPins), within 1s",
		},
	} {
		t.Run(string(c.broken)+"/"+c.check, func(t *testing.T) {
			all := checks[address, string]()
			check := all[slices.IndexFunc(all, func(other check[address, string]) bool { return other.name() == c.check })]
			says := func(switches bool) string {
				r := record(t.Context(), func(r tb) { check.run(r, newOwn(t, c.broken, switches)) })
				return r.failure + r.skipped
			}
			require.Contains(t, says(false), c.without)
			require.Contains(t, says(true), cmp.Or(c.with, c.without))
		})
	}
}
