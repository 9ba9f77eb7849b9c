package communicatortest

// The reference implementation on which the kit is tested. It is correct unless it
// has a bug.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
)

// reference is an in-process cluster.
type reference struct {
	broken  bug
	workers map[string]*node
	lock    chan struct{} // of oneLockForAll
}

// node is one worker, behind a network with switches.
type node struct {
	mu       sync.Mutex
	seen     orchestrator.Term
	tasks    []string
	stopping map[string]bool // by stopLater
	refuses  map[string]bool
	lingers  map[string]chan struct{} // by task; closed when it may stop
	cut      chan struct{}            // nil, or closed when healed
	unheard  []string                 // the tasks of the adds that were lost while it was cut off
	held     *gate
	pins     map[string]bool
	lost     bool  // nothing collected the pins of the last List
	next     *node // the process that has replaced it; nil: none
}

// gate holds back writes.
type gate struct {
	open    chan struct{}
	waiting sync.WaitGroup
}

// newReference returns a cluster for the kit.
func newReference(broken bug) Cluster[string, string] {
	r := &reference{
		broken:  broken,
		workers: map[string]*node{"w1": {}, "w2": {}, "w3": {}, "w1, anew": {}},
		lock:    make(chan struct{}, 1),
	}
	return Cluster[string, string]{
		Communicator: struct {
			*reference
			referenceApplier
		}{r, referenceApplier{r}},
		Workers:        []string{"w1", "w2", "w3"},
		Tasks:          []string{"a", "b", "c"},
		UnknownWorkers: []string{"nobody"},
		Hold:           r.hold,
		Cut:            r.cut,
		Refuse:         r.refuse,
		Linger:         r.linger,
		Pin:            r.pin,
		Restart:        r.restart,
	}
}

func (r *reference) hold(worker string) func() {
	n := r.workers[worker]
	g := &gate{open: make(chan struct{})}
	n.mu.Lock()
	n.held = g
	n.mu.Unlock()
	return func() {
		n.mu.Lock()
		n.held = nil
		n.mu.Unlock()
		close(g.open)
		g.waiting.Wait()
	}
}

func (r *reference) cut(worker string) func() {
	n := r.workers[worker]
	set := func(cut chan struct{}) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.cut = cut
	}
	cut := make(chan struct{})
	set(cut)
	return func() {
		if r.broken == cutListsLast {
			n.mu.Lock()
			n.tasks = append(n.tasks, n.unheard...)
			n.mu.Unlock()
		}
		set(nil)
		close(cut)
	}
}

func (r *reference) refuse(worker, task string) func() {
	n := r.workers[worker]
	set := func(refuses map[string]bool) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.refuses = refuses
	}
	set(map[string]bool{task: true})
	return func() { set(nil) }
}

func (r *reference) linger(worker, task string) func() {
	n := r.workers[worker]
	end := make(chan struct{})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lingers = map[string]chan struct{}{task: end}
	return func() { close(end) }
}

func (r *reference) pin(worker, task string) func() {
	n := r.workers[worker]
	set := func(pins map[string]bool) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.pins = pins
	}
	set(map[string]bool{task: true})
	return func() { set(nil) }
}

func (r *reference) restart(worker string) string {
	n := r.workers[worker]
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next = r.workers[worker+", anew"]
	return worker + ", anew"
}

// node returns the process of a worker.
func (r *reference) node(worker string) (*node, bool) {
	n, ok := r.workers[worker]
	if !ok {
		return nil, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		return n.next, r.broken == callsReachSuccessor
	}
	return n, true
}

func (r *reference) List(ctx context.Context, worker string) ([]string, error) {
	tasks, err := r.list(ctx, worker)
	if err != nil && r.broken == errorsAreEmpty {
		return nil, nil
	}
	return tasks, err
}

func (r *reference) list(ctx context.Context, worker string) ([]string, error) {
	n, ok := r.node(worker)
	switch {
	case !ok && r.broken == strangersAreEmpty:
		return nil, nil
	case !ok:
		return nil, errors.New("no such worker")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n.mu.Lock()
	cut := n.cut
	n.mu.Unlock()
	if r.broken == alwaysHeld {
		orchestrator.Held(ctx)
	}
	if list, ok := r.listCut(ctx, n); ok {
		return list, nil
	}
	if cut != nil {
		<-ctx.Done()
		if r.broken == listIgnoresCut {
			<-cut
		}
		return nil, context.Cause(ctx)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	term, ok := orchestrator.TermFromContext(ctx)
	switch {
	case !ok && r.broken == noTermListRefused:
		return nil, orchestrator.ErrStale
	case !ok && r.broken == noTermListResets:
		n.seen = orchestrator.Term{}
	case r.broken == lastTermWins:
		n.seen = term
	case r.broken != listDoesNotFence && r.compare(n.seen, term) < 0:
		n.seen = term
	}
	if r.broken == listSharesItsSlice {
		return n.tasks, nil
	}
	return n.pinning(ctx, r.broken), nil
}

// pinning returns the tasks, those that are pinned last, and pins them.
func (n *node) pinning(ctx context.Context, broken bug) []string {
	var tasks, pinned []string
	for _, task := range n.tasks {
		if n.pins[task] {
			pinned = append(pinned, task)
		} else {
			tasks = append(tasks, task)
		}
	}
	switch {
	case broken == pinsAreLost:
	case broken == pinsAreFirst:
		orchestrator.Pin(ctx, len(pinned))
		return slices.Concat(pinned, tasks)
	case broken == pinsAll:
		orchestrator.Pin(ctx, len(n.tasks))
	case !orchestrator.Pin(ctx, len(pinned)) && broken != pinsInVain:
		n.lost = true
	default:
		n.lost = false
	}
	return slices.Concat(tasks, pinned)
}

// listCut lists a worker that is cut off, if the reference holds its list.
func (r *reference) listCut(ctx context.Context, n *node) ([]string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.cut == nil:
		return nil, false
	case r.broken == cutListsLast:
		return slices.Clone(n.tasks), true
	case r.broken == cutListsNothing:
		return nil, true
	case r.broken == heldForgetsSent:
		return slices.Clone(n.tasks), orchestrator.Held(ctx)
	case r.broken == heldIsEmpty:
		return nil, orchestrator.Held(ctx)
	case r.broken == holdsLists:
		return slices.Concat(n.tasks, n.unheard), orchestrator.Held(ctx)
	}
	return nil, false
}

func (r *reference) Add(ctx context.Context, worker, task string) error {
	return r.send(ctx, worker, []orchestrator.Write[string]{{Op: orchestrator.OpAdd, Task: task}})[0]
}

func (r *reference) Remove(ctx context.Context, worker, task string) error {
	return r.send(ctx, worker, []orchestrator.Write[string]{{Op: orchestrator.OpRemove, Task: task}})[0]
}

// referenceApplier is a reference that is an Applier.
type referenceApplier struct{ r *reference }

func (a referenceApplier) Apply(ctx context.Context, worker string, writes []orchestrator.Write[string]) []error {
	errs := a.r.send(ctx, worker, writes)
	switch a.r.broken {
	case answersReversed:
		slices.Reverse(errs)
	case applyShort:
		return errs[:len(errs)-min(1, len(errs)-1)]
	case applyChangesWrites:
		slices.Reverse(writes)
	default:
		if errors.Join(errs...) == nil {
			return nil
		}
	}
	return errs
}

// send delivers writes to a worker, and waits for the answers until the context
// ends.
func (r *reference) send(ctx context.Context, worker string, writes []orchestrator.Write[string]) []error {
	answer := make(chan []error, 1)
	n, ok := r.node(worker)
	switch {
	case !ok && r.broken == strangersAreAddedTo:
		return make([]error, len(writes))
	case !ok:
		return slices.Repeat([]error{errors.New("no such worker")}, len(writes))
	case ctx.Err() != nil && r.broken != ignoresContext:
		return slices.Repeat([]error{ctx.Err()}, len(writes))
	}
	if r.broken == oneLockForAll {
		r.lock <- struct{}{}
		defer func() { <-r.lock }()
	}
	writes = slices.Clone(writes)
	n.mu.Lock()
	switch g := n.held; {
	case n.cut != nil && r.broken == ignoresContext:
		cut := n.cut
		go func() {
			<-cut
			answer <- slices.Repeat([]error{errors.New("cut off")}, len(writes))
		}()
	case n.cut != nil:
		for _, w := range writes {
			if w.Op == orchestrator.OpAdd {
				n.unheard = append(n.unheard, w.Task)
			}
		}
	case g != nil:
		arrived := n.seen
		g.waiting.Go(func() {
			<-g.open
			answer <- r.apply(ctx, n, arrived, writes)
		})
	default:
		n.mu.Unlock()
		answer <- r.apply(ctx, n, n.seen, writes)
		n.mu.Lock()
	}
	n.mu.Unlock()

	if r.broken == ignoresContext {
		return <-answer
	}
	select {
	case errs := <-answer:
		return errs
	case <-ctx.Done():
		err := context.Cause(ctx)
		if r.broken == timeoutIsRejection {
			err = fmt.Errorf("%w: %w", orchestrator.ErrRejected, err)
		}
		return slices.Repeat([]error{err}, len(writes))
	}
}

// apply applies writes at the worker. arrived is the fence at the time of their
// arrival.
func (r *reference) apply(ctx context.Context, n *node, arrived orchestrator.Term, writes []orchestrator.Write[string]) []error {
	n.mu.Lock()
	defer n.mu.Unlock()
	errs := make([]error, len(writes))
	if n.next != nil && r.broken == heldReachSuccessor {
		return r.apply(ctx, n.next, arrived, writes)
	} else if n.next != nil {
		return slices.Repeat([]error{errors.New("another process")}, len(writes))
	}
	if r.broken == writesAgain {
		later := slices.Clone(writes)
		time.AfterFunc(50*time.Millisecond, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			for _, w := range later {
				if r.fence(ctx, n, n.seen) == nil {
					_ = r.do(n, w)
				}
			}
		})
	}
	for i, w := range writes {
		if err := r.fence(ctx, n, arrived); err != nil && (i == 0 || r.broken != fencesFirstOnly) {
			errs[i] = err
			if r.broken != staleYetDone {
				continue
			}
		}
		if i > 0 && r.broken == forgetsSecondWrite {
			continue
		}
		if err := r.await(ctx, n, w); err != nil {
			errs[i] = err
			continue // the stop belongs to the later leader
		}
		if err := r.do(n, w); err != nil {
			errs[i] = err
		}
	}
	return errs
}

// await waits until a stopping task may stop. It returns ErrStopping if the call's
// context ends first, and the fence's error if a later term was seen. The caller
// holds n.mu, which is released during the wait.
func (r *reference) await(ctx context.Context, n *node, w orchestrator.Write[string]) error {
	end := n.lingers[w.Task]
	if w.Op != orchestrator.OpRemove || end == nil || r.broken == removesLingering {
		return nil
	}
	n.mu.Unlock()
	var err error
	select {
	case <-end:
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", orchestrator.ErrStopping, context.Cause(ctx))
	}
	n.mu.Lock()
	if err != nil || r.broken == removeOutlivesLeader {
		return err
	}
	return r.fence(ctx, n, n.seen)
}

// fence refuses a write of an earlier term, and raises the fence.
func (r *reference) fence(ctx context.Context, n *node, arrived orchestrator.Term) error {
	term, ok := orchestrator.TermFromContext(ctx)
	seen := n.seen
	if r.broken == fenceOnArrival {
		seen = arrived
	}
	switch {
	case r.broken == noFence:
		return nil
	case !ok && r.broken == noTermIsDeposed:
		return orchestrator.ErrDeposed
	case !ok && r.broken != acceptsNoTerm && seen != orchestrator.Term{}:
		return orchestrator.ErrStale
	case !ok:
		return nil
	case r.compare(term, seen) == 0 && r.broken == equalIsRefused && len(n.tasks) > 0:
		return orchestrator.ErrStale
	case r.compare(term, seen) >= 0:
		if r.broken != writesDoNotFence {
			n.seen = term
		}
		return nil
	case term.Epoch < seen.Epoch && r.broken != lowerEpochIsStale:
		return fmt.Errorf("w: %w", orchestrator.ErrDeposed)
	case r.broken == lowerNumberIsDeposed:
		return orchestrator.ErrDeposed
	case r.broken == lowerNumberIsPlain:
		return orchestrator.ErrRejected
	}
	return fmt.Errorf("w: %w", orchestrator.ErrStale)
}

func (r *reference) compare(t, u orchestrator.Term) int {
	if r.broken == comparesNumberFirst && t.Number != u.Number {
		return int(t.Number) - int(u.Number)
	}
	return t.Compare(u)
}

// do applies one write.
func (r *reference) do(n *node, w orchestrator.Write[string]) error {
	at := slices.Index(n.tasks, w.Task)
	switch {
	case w.Op == orchestrator.OpAdd && n.refuses[w.Task] && r.broken == refusalIsUnknown:
		return errors.New("no room")
	case w.Op == orchestrator.OpAdd && n.refuses[w.Task]:
		if r.broken == refusesYetAdds {
			n.tasks = append(n.tasks, w.Task)
		}
		return fmt.Errorf("no room: %w", orchestrator.ErrRejected)
	case w.Op == orchestrator.OpAdd && at < 0 && r.broken == addAnswersEarly:
		time.AfterFunc(time.Second, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.tasks = append(n.tasks, w.Task)
		})
	case w.Op == orchestrator.OpAdd && at < 0, w.Op == orchestrator.OpAdd && r.broken == addTwiceListsTwice:
		n.tasks = append(n.tasks, w.Task)
	case w.Op == orchestrator.OpAdd && r.broken == addTwiceFails:
		return errors.New("runs already")
	case w.Op == orchestrator.OpRemove && at < 0 && r.broken == removeTwiceFails:
		return errors.New("does not run")
	case w.Op == orchestrator.OpRemove && at >= 0 && n.pins[w.Task] && n.lost:
		return fmt.Errorf("pinned: %w", orchestrator.ErrRejected)
	case w.Op == orchestrator.OpRemove && at >= 0 && r.broken == removeAnswersEarly:
		n.stopLater(w.Task)
	case w.Op == orchestrator.OpRemove && at >= 0 && r.broken == stopsSlowly:
		n.stopLater(w.Task)
		return fmt.Errorf("w: %w", orchestrator.ErrStopping)
	case w.Op == orchestrator.OpRemove && at >= 0:
		n.tasks = slices.Delete(n.tasks, at, at+1)
	}
	return nil
}

// stopLater stops a task once, after a delay.
func (n *node) stopLater(task string) {
	if n.stopping[task] {
		return
	}
	if n.stopping == nil {
		n.stopping = make(map[string]bool)
	}
	n.stopping[task] = true
	time.AfterFunc(time.Second, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.stopping, task)
		n.tasks = slices.DeleteFunc(n.tasks, func(t string) bool { return t == task })
	})
}
