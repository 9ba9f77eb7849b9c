package replica

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
)

// Owner is a replica that runs a task.
type Owner struct {
	Name string
	ID   uint64
	// Attributes are those of [WithAttributes]. They must not be changed.
	Attributes map[string]string
	// Since is when the replica that answers first saw that this one runs the task.
	Since time.Time
}

// Change says who runs a task from now on. Owners must not be changed.
type Change struct {
	Task   string
	Owners []Owner
}

// Owners returns who runs a task, by name: the replicas whose reports have it, unless it is not
// ready yet ([worker.Ready]). Any replica can be asked. A replica that does not lead then reads
// the whole table for ten seconds: Owners waits for that, at most a second, and not again for ten
// seconds if that was in vain. While the table cannot be read, and after Run, it returns what was
// known last. The answer is a hint, because the task may move at any time: the owner must check its
// own lease (worker.Check). The slice must not be changed.
func (r *Replica) Owners(task string) []Owner {
	r.fleet.ask(&r.fleet.who, r.wake)
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	return r.fleet.owners[task]
}

// Watch yields every change of the owners of a task until ctx ends or the loop is left. It begins
// with every task that has an owner. A change that follows another one of the same task before
// the loop has got to it replaces it. Meanwhile the replica reads the whole table, as for Owners.
func (r *Replica) Watch(ctx context.Context) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		f := &r.fleet
		f.ask(&f.who, r.wake)
		w := &watcher{changed: make(map[string]bool), woken: make(chan struct{}, 1)}
		f.mu.Lock()
		for task := range f.owners {
			w.changed[task] = true
		}
		f.watchers[w] = true
		f.mu.Unlock()
		defer func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.watchers, w)
		}()
		for ctx.Err() == nil {
			f.mu.Lock()
			changes := make([]Change, 0, len(w.changed))
			for _, task := range slices.Sorted(maps.Keys(w.changed)) {
				changes = append(changes, Change{task, f.owners[task]})
			}
			clear(w.changed)
			f.mu.Unlock()
			for _, c := range changes {
				if !yield(c) {
					return
				}
			}
			select {
			case <-ctx.Done():
			case <-w.woken:
			case <-time.After(followTime / 2):
			}
			f.ask(&f.who, r.wake) // also while there are changes
		}
	}
}

// Last returns the last term, for dashboards: that of the orchestrator if the replica leads, and
// otherwise one that only looks ([orchestrator.TermStats].Observed), which a replica runs at its
// interval for ten seconds after a call, while the table can be read. Last waits for the first
// one, at most a second, and not again for ten seconds if that was in vain. Without a
// term it returns nil.
func (r *Replica) Last() *orchestrator.Snapshot[WorkerID, string] {
	r.fleet.ask(&r.fleet.why, r.wake)
	if o := r.present(); o != nil {
		return o.Last()
	}
	return nil
}

// OnTerm registers a function that is called with each term that [Replica.Last] returns; see
// [orchestrator.Orchestrator.OnTerm]. f must not be nil.
func (r *Replica) OnTerm(f func(*orchestrator.Snapshot[WorkerID, string])) (stop func()) {
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	r.fleet.observers = append(r.fleet.observers, &f)
	return func() {
		r.fleet.mu.Lock()
		defer r.fleet.mu.Unlock()
		if i := slices.Index(r.fleet.observers, &f); i >= 0 {
			r.fleet.observers = slices.Delete(r.fleet.observers, i, i+1)
		}
	}
}

// Plan returns what the next term would do under a hypothesis; see [orchestrator.Orchestrator.Plan].
// It is an error if the replica knows of no term.
func (r *Replica) Plan(h orchestrator.Hypothesis[WorkerID, string]) (orchestrator.Plan[WorkerID, string], error) {
	if o := r.present(); o != nil {
		return o.Plan(h)
	}
	return orchestrator.Plan[WorkerID, string]{}, fmt.Errorf("replica %s: no term is known", r.s.self.Name)
}

// Progress returns the progress of the term under way; see [orchestrator.Orchestrator.Progress].
func (r *Replica) Progress() (p orchestrator.Progress[WorkerID]) {
	if o := r.present(); o != nil {
		p = o.Progress()
	}
	return p
}

// Config returns the options in force of the orchestrator; zero if no term is known.
func (r *Replica) Config() (c orchestrator.Config) {
	if o := r.present(); o != nil {
		c = o.Config()
	}
	return c
}

// States returns what a replica last reported of its tasks: see [TaskState], at most a hundred, by
// name. It waits for nothing: call [Replica.Last] first. The slice must not be changed.
func (r *Replica) States(w WorkerID) (states []TaskState) {
	r.mu.Lock()
	c := r.all
	r.mu.Unlock()
	if c != nil {
		c.do(func(d *dispatch) {
			if m := d.members[w.ID]; m != nil {
				states = m.report.States
			}
		})
	}
	return states
}

// present returns the orchestrator whose terms are shown; nil: none.
func (r *Replica) present() *orchestrator.Orchestrator[WorkerID, string] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.o
}

// followTime is how long a replica follows the table after a question.
const followTime = 10 * time.Second

// fleet has what others ask of all replicas. The loop writes it.
type fleet struct {
	mu        sync.Mutex
	running   bool
	who, why  question // for owners; for terms
	owners    map[string][]Owner
	members   map[uint64]*ownership
	watchers  map[*watcher]bool
	observers []*func(*orchestrator.Snapshot[WorkerID, string])
}

// question is something that others ask.
type question struct {
	asked time.Time     // the last time
	late  time.Time     // when an answer has taken too long
	known chan struct{} // closed while the answer is known
}

// ownership is what a member owns.
type ownership struct {
	of    <-chan struct{} // the member's state from which it follows; see memberOrders.changed
	name  string          // empty: its record was missing
	tasks map[string]bool
}

// watcher is a call of Watch.
type watcher struct {
	changed map[string]bool // tasks
	woken   chan struct{}
}

func newFleet() fleet {
	return fleet{
		who: question{known: make(chan struct{})}, why: question{known: make(chan struct{})},
		owners: make(map[string][]Owner), members: make(map[uint64]*ownership),
		watchers: make(map[*watcher]bool),
	}
}

// ask makes the loop find the answer, and waits until it has, unless it was too late lately.
func (f *fleet) ask(q *question, wake func()) {
	f.mu.Lock()
	now := time.Now()
	running, waits, known := f.running, now.Sub(q.late) >= followTime, q.known
	if running {
		q.asked = now
	}
	f.mu.Unlock()
	select {
	case <-known:
		return
	default:
		wake()
	}
	if running && waits {
		select {
		case <-known:
		case <-time.After(time.Second):
			f.mu.Lock()
			defer f.mu.Unlock()
			q.late = time.Now()
		}
	}
}

// run records that the loop begins or ends.
func (f *fleet) run(running bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running = running; len(f.watchers) > 0 {
		f.who.asked = time.Now()
	}
}

// isAsked reports whether somebody asks.
func (f *fleet) isAsked(q *question, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return now.Sub(q.asked) < followTime
}

// answer records whether the answer is known.
func (f *fleet) answer(q *question, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-q.known:
		if !known {
			q.known = make(chan struct{})
		}
	default:
		if known {
			close(q.known)
		}
	}
}

// onTerm calls the functions of OnTerm.
func (f *fleet) onTerm(s *orchestrator.Snapshot[WorkerID, string]) {
	f.mu.Lock()
	all := slices.Clone(f.observers)
	f.mu.Unlock()
	for _, one := range all {
		f.mu.Lock()
		on := slices.Contains(f.observers, one)
		f.mu.Unlock()
		if on {
			(*one)(s)
		}
	}
}

// update finds the owners anew of the members that have changed.
func (f *fleet) update(d *dispatch, seen map[uint64]*sighting, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.members {
		if m := d.members[id]; m == nil || m.gone {
			f.set(Owner{ID: id}, nil)
			delete(f.members, id)
		}
	}
	for id, m := range d.members {
		owner, was := Owner{ID: id, Since: now}, f.members[id]
		if s := seen[id]; s != nil {
			owner.Name, owner.Attributes = s.member.Name, s.member.Attributes
		}
		if m.gone || was != nil && was.of == m.changed && was.name == owner.Name {
			continue
		}
		tasks := make(map[string]bool)
		for _, task := range m.mayRunAll() { // it may still run what it has run
			if (was != nil && was.tasks[task] || m.reports(task)) && !m.starting[task] {
				tasks[task] = true
			}
		}
		if was != nil && was.name != owner.Name { // its record was missing
			f.set(owner, nil)
			was.tasks = nil
		}
		f.set(owner, tasks)
		f.members[id] = &ownership{m.changed, owner.Name, tasks}
	}
}

// set records which tasks a member owns.
func (f *fleet) set(owner Owner, tasks map[string]bool) {
	var was map[string]bool
	if m := f.members[owner.ID]; m != nil {
		was = m.tasks
	}
	for task := range was {
		if !tasks[task] {
			f.change(task, slices.DeleteFunc(slices.Clone(f.owners[task]), func(o Owner) bool { return o.ID == owner.ID }))
		}
	}
	for task := range tasks {
		if !was[task] {
			f.change(task, append(slices.Clone(f.owners[task]), owner))
		}
	}
}

// change records the owners of a task, and tells those who watch.
func (f *fleet) change(task string, owners []Owner) {
	slices.SortFunc(owners, func(a, b Owner) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	if f.owners[task] = owners; len(owners) == 0 {
		delete(f.owners, task)
	}
	for w := range f.watchers {
		w.changed[task] = true
		select {
		case w.woken <- struct{}{}:
		default:
		}
	}
}
