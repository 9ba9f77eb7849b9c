package simulator

// The truth: what runs where, and what must never run where.

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// run is one run of a task on a worker.
type run struct {
	task   string
	worker *member
	began  time.Time
	// leader is who has started it, and term in which term; nil where the worker
	// did so by itself.
	leader *leader
	term   orchestrator.Term
	over   bool
	// copies is how many there were when it began, with it, and with those that a
	// worker may run again that has crashed.
	copies int
	// stray is when its worker was no member, until a leader has heard of the
	// run.
	stray spell
}

// start returns what the leader had in mind.
func (r *run) start() start {
	if r.leader == nil {
		return start{}
	}
	return r.leader.starts[startKey{r.term.Number, writeKey{r.task, r.worker.name}}]
}

// errDown is what a task returns that was started too late.
var errDown = errors.New("the worker is gone")

// runTask is what every task does.
func (w *world) runTask(ctx context.Context, name, task string) error {
	r := w.started(name, task)
	if r == nil {
		return errDown
	}
	d := throw(w.seed, "run", uint64(time.Since(w.began)))
	d.text(name)
	d.text(task)
	slow := func(odds float64) time.Duration {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.calm || r.worker.restoring || !d.chance(odds) {
			return 0
		}
		return d.between(0, longestStop*w.Timeout)
	}
	if pause := slow(w.slowLoad); pause > 0 {
		w.count("slow to be ready")
		select {
		case <-time.After(stopLane(r.worker.index).after(pause)):
		case <-ctx.Done():
		}
	}
	worker.Ready(ctx)
	<-ctx.Done()
	if pause := slow(w.slowStop); pause > 0 {
		w.count("slow to stop")
		<-time.After(stopLane(r.worker.index).after(pause))
	}
	w.stopped(r)
	return nil
}

func (w *world) count(fault string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.Faults[fault]++
}

// started enters the start of a task into the books, and checks whether it may
// be.
func (w *world) started(name, task string) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.workers[name]
	if !m.alive && !m.restoring {
		return nil
	}
	r := &run{task: task, worker: m, began: time.Now()}
	if !m.registered {
		r.stray.since = r.began
	}
	w.running[task] = append(w.running[task], r)
	r.copies = len(w.running[task]) + w.remembered(task)
	var by *arrival
	for _, a := range m.adds {
		if a.adds(task) && a.term.Compare(m.seen) >= 0 && (by == nil || by.term.Compare(a.term) < 0) {
			by = a
		}
	}
	w.note(farLane(0, m.index), "%s runs %s", name, task)
	if by == nil && !m.restoring {
		w.fail(nil, m.seen, Caused, "%s has started %s, and no write that it may accept has told it to: it has seen %v",
			name, task, m.seen)
		return r
	}
	if by != nil {
		r.leader, r.term = w.byEpoch[by.term.Epoch], by.term
	}
	want := w.wanted(task)
	if len(w.running[task]) <= want {
		return r
	}
	o := &overlap{
		at: time.Now(), task: task, runs: slices.Clone(w.running[task]), want: want,
		again: by == nil, stops: maps.Clone(w.stops[task]),
	}
	for _, l := range w.leaders {
		if l.under > l.reviewed {
			o.waits = append(o.waits, underway{l, l.under})
		}
	}
	w.pending = append(w.pending, o)
	return r
}

// remembered counts the workers that have crashed and may run a task again. mu is
// held.
func (w *world) remembered(task string) int {
	n := 0
	for _, m := range w.workers {
		if !m.alive && m.registered && slices.Contains(m.memory, task) {
			n++
		}
	}
	return n
}

// stopped enters the end of a run into the books.
func (w *world) stopped(r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.over {
		return
	}
	w.end(r)
	w.note(farLane(0, r.worker.index), "%s runs %s no more", r.worker.name, r.task)
}

// end takes a run out of the books. mu is held.
func (w *world) end(r *run) {
	r.over = true
	if w.stops[r.task] == nil {
		w.stops[r.task] = make(map[string]stop)
	}
	w.stops[r.task][r.worker.name] = stop{time.Now(), len(w.running[r.task])}
	w.running[r.task] = slices.DeleteFunc(w.running[r.task], func(other *run) bool { return other == r })
}

// allStopped enters into the books that a worker's process is gone. mu is held.
func (w *world) allStopped(m *member) {
	for _, runs := range w.running {
		for _, r := range slices.Clone(runs) {
			if r.worker == m {
				w.end(r)
			}
		}
	}
	m.adds = nil
}

// astray takes note that what a worker runs is nobody's business any more. mu is
// held.
func (w *world) astray(m *member) {
	if !m.alive {
		return
	}
	for _, runs := range w.running {
		for _, r := range runs {
			if r.worker == m {
				r.stray = spell{since: time.Now()}
			}
		}
	}
}

// wanted returns how many instances of a task any leader may have in mind. mu is
// held.
func (w *world) wanted(task string) int {
	want := 0
	for _, l := range w.leaders {
		if l.gone {
			continue
		}
		for _, v := range l.views {
			want = max(want, v.tasks[task].Instances)
		}
	}
	return want
}
