package rebalance_test

import (
	"fmt"
	"slices"

	"github.com/f8949c05/orchestrator/rebalance"
)

// This file checks a plan against the clauses P1 to P8, from the problem alone.

// reading is what follows from a problem's input.
type reading struct {
	pr             *rebalance.Problem
	tasks, workers int
	held           [][]bool // by worker and task
	open, closed   []int    // workers
	forbidden      map[rebalance.Pair]bool
	bounded        bool // an open worker has a bound
	over           bool // and one of them holds more than that, of expected tasks
	// Copies by task: on frozen workers, on all others, on draining ones, on closed ones.
	frozen, answering, draining, kept []int
	// target is how many copies each task is to have outside the frozen workers.
	target []int
}

func read(pr *rebalance.Problem) *reading {
	r := &reading{
		pr: pr, tasks: len(pr.Want), workers: len(pr.States),
		held:      make([][]bool, len(pr.States)),
		forbidden: make(map[rebalance.Pair]bool),
		frozen:    make([]int, len(pr.Want)), answering: make([]int, len(pr.Want)),
		draining: make([]int, len(pr.Want)), kept: make([]int, len(pr.Want)),
		target: make([]int, len(pr.Want)),
	}
	for w, list := range pr.Held {
		r.held[w] = make([]bool, r.tasks)
		for _, t := range list {
			r.held[w][t] = true
		}
		for t, holds := range r.held[w] {
			switch {
			case !holds:
			case pr.States[w] == rebalance.Frozen:
				r.frozen[t]++
			default:
				r.answering[t]++
			}
			if holds && pr.States[w] == rebalance.Draining {
				r.draining[t]++
			}
			if holds && pr.States[w] == rebalance.Closed {
				r.kept[t]++
			}
		}
	}
	for w, s := range pr.States {
		switch s {
		case rebalance.Open:
			r.open = append(r.open, w)
			if pr.Bounds != nil && pr.Bounds[w] >= 0 {
				expected := 0
				for t, holds := range r.held[w] {
					if holds && pr.Want[t] > 0 {
						expected++
					}
				}
				r.bounded, r.over = true, r.over || expected > int(pr.Bounds[w])
			}
		case rebalance.Closed:
			r.closed = append(r.closed, w)
		}
	}
	for _, p := range pr.Forbidden {
		r.forbidden[p] = true
	}
	for t, want := range pr.Want {
		if i := int(want); i > 0 {
			r.target[t] = max(i-r.frozen[t], min(i, r.answering[t]))
		}
	}
	return r
}

// free says that nothing restricts which open worker may run what.
func (r *reading) free() bool { return !r.bounded && len(r.forbidden) == 0 }

// plain says that the minimum of Adds is promised.
func (r *reading) plain() bool { return r.free() && len(r.closed) == 0 }

// mayRun says whether a worker may run a task after the plan.
func (r *reading) mayRun(worker, task int) bool {
	if r.held[worker][task] {
		return true
	}
	pair := rebalance.Pair{Task: int32(task), Worker: int32(worker)}
	return r.pr.States[worker] == rebalance.Open && !r.forbidden[pair]
}

// room is how many tasks an open or closed worker may run.
func (r *reading) room(worker int) int {
	if r.pr.States[worker] == rebalance.Open && r.pr.Bounds != nil && r.pr.Bounds[worker] >= 0 {
		return min(r.tasks, int(r.pr.Bounds[worker]))
	}
	return r.tasks
}

// depth says how late it is that a task gets copy j, counted from 0, outside
// the frozen and draining workers. What runs there comes before all that is
// missing: P4.
func (r *reading) depth(task, j int) int64 {
	if j < min(int(r.pr.Want[task]), r.answering[task]-r.draining[task]) {
		return 0
	}
	return int64(r.frozen[task] + j + 1)
}

// outcome is a plan, carried out.
type outcome struct {
	*reading
	plan  rebalance.Plan
	after [][]bool // by worker and task
	// Copies by task after the plan: on open, closed, draining workers.
	onOpen, onClosed, onDraining []int
	loads                        []int // by worker
}

// carryOut applies a plan, and says what is not allowed in it.
func carryOut(r *reading, plan rebalance.Plan) (*outcome, error) {
	o := &outcome{
		reading: r, plan: plan, after: make([][]bool, r.workers), loads: make([]int, r.workers),
		onOpen: make([]int, r.tasks), onClosed: make([]int, r.tasks), onDraining: make([]int, r.tasks),
	}
	for w := range o.after {
		o.after[w] = slices.Clone(r.held[w])
	}
	gained := make([]int, r.workers)
	for i, c := range plan.Changes {
		if c.Task < 0 || int(c.Task) >= r.tasks {
			return nil, fmt.Errorf("P1: change %d, %+v: no such task", i, c)
		}
		if c.From == rebalance.None && c.To == rebalance.None || c.From == c.To {
			return nil, fmt.Errorf("P1: change %d, %+v, changes nothing", i, c)
		}
		if w := c.From; w != rebalance.None {
			switch {
			case w < 0 || int(w) >= r.workers:
				return nil, fmt.Errorf("P1: change %d, %+v: no such worker", i, c)
			case !r.held[w][c.Task]:
				return nil, fmt.Errorf("P1: change %d, %+v, takes what is not held", i, c)
			case !o.after[w][c.Task]:
				return nil, fmt.Errorf("P1: change %d, %+v, takes what was taken already", i, c)
			case r.pr.States[w] == rebalance.Frozen:
				return nil, fmt.Errorf("P1: change %d, %+v, takes from a frozen worker", i, c)
			}
			o.after[w][c.Task] = false
		}
		if w := c.To; w != rebalance.None {
			switch {
			case w < 0 || int(w) >= r.workers:
				return nil, fmt.Errorf("P1: change %d, %+v: no such worker", i, c)
			case r.pr.States[w] != rebalance.Open:
				return nil, fmt.Errorf("P1: change %d, %+v, adds to a worker that is not open", i, c)
			case r.held[w][c.Task]:
				return nil, fmt.Errorf("P1: change %d, %+v, adds what is held", i, c)
			case o.after[w][c.Task]:
				return nil, fmt.Errorf("P1: change %d, %+v, adds what was added already", i, c)
			case !r.mayRun(int(w), int(c.Task)):
				return nil, fmt.Errorf("P1: change %d, %+v, adds a forbidden pair", i, c)
			}
			o.after[w][c.Task] = true
			gained[w]++
		}
	}
	for w, list := range o.after {
		for t, runs := range list {
			if !runs {
				continue
			}
			o.loads[w]++
			switch r.pr.States[w] {
			case rebalance.Open:
				o.onOpen[t]++
			case rebalance.Closed:
				o.onClosed[t]++
			case rebalance.Draining:
				o.onDraining[t]++
			}
		}
		if r.pr.States[w] == rebalance.Open && o.loads[w] > r.room(w) && gained[w] > 0 && r.pr.MaxMoves < 0 { // a missing copy may overfill a worker rather than wait for a move
			return nil, fmt.Errorf("P1: worker %d has bound %d, is to run %d and gains %d", w, r.pr.Bounds[w], o.loads[w], gained[w])
		}
	}
	for i, c := range plan.Changes {
		if c.From != rebalance.None && c.To != rebalance.None && o.loads[c.To] > r.room(int(c.To)) {
			return nil, fmt.Errorf("P1: change %d, %+v, is a move, and worker %d ends with %d, bound %d", i, c, c.To, o.loads[c.To], r.pr.Bounds[c.To])
		}
	}
	return o, nil
}

// problem is the state that the plan leads to, as a problem.
func (o *outcome) problem() *rebalance.Problem {
	next := *o.pr
	next.Held = make([][]int32, o.workers)
	for w, list := range o.after {
		for t, runs := range list {
			if runs {
				next.Held[w] = append(next.Held[w], int32(t))
			}
		}
	}
	return &next
}

// squares is the sum of squared loads of the open workers.
func (o *outcome) squares() (sum int64) {
	for _, w := range o.open {
		sum += int64(o.loads[w]) * int64(o.loads[w])
	}
	return sum
}

// clauses checks everything that one plan shows. The first error is returned,
// beginning with its clause.
func (o *outcome) clauses() error {
	for _, check := range []func(*outcome) error{
		(*outcome).sums, (*outcome).reasons, (*outcome).copies, (*outcome).unplaced, (*outcome).beyond, (*outcome).level, (*outcome).spread,
	} {
		if err := check(o); err != nil {
			return err
		}
	}
	return nil
}

// sums checks the plan's own figures: P8, and the budget.
func (o *outcome) sums() error {
	adds, moves := 0, 0
	for _, c := range o.plan.Changes {
		if c.To != rebalance.None {
			adds++
			if c.From != rebalance.None {
				moves++
			}
		}
	}
	p := o.plan
	switch {
	case p.Adds != adds || p.Moves != moves:
		return fmt.Errorf("P8: says %d adds and %d moves, has %d and %d", p.Adds, p.Moves, adds, moves)
	case p.LowerBound < 0 || p.LowerBound > p.Adds+p.Deferred:
		return fmt.Errorf("P8: lower bound %d, but %d adds and %d deferred", p.LowerBound, p.Adds, p.Deferred)
	case p.Deferred < 0 || o.pr.MaxMoves < 0 && p.Deferred != 0:
		return fmt.Errorf("P6: %d moves deferred with a limit of %d", p.Deferred, o.pr.MaxMoves)
	case o.pr.MaxMoves >= 0 && moves > o.pr.MaxMoves:
		return fmt.Errorf("P6: %d moves with a limit of %d", moves, o.pr.MaxMoves)
	}
	return nil
}

// reasons checks P7 for the changes: a task that is started is not stopped as
// well, for that is a move.
func (o *outcome) reasons() error {
	starts, stops := make([]bool, o.tasks), make([]bool, o.tasks)
	for i, c := range o.plan.Changes {
		var want rebalance.Reason
		switch {
		case c.From == rebalance.None:
			want = rebalance.Missing
			starts[c.Task] = true
		case c.To == rebalance.None && o.pr.Want[c.Task] == 0:
			want = rebalance.Unexpected
		case c.To == rebalance.None:
			want = rebalance.Surplus
			stops[c.Task] = true
		case o.pr.States[c.From] == rebalance.Draining:
			want = rebalance.Drain
		default:
			want = rebalance.Rebalance
		}
		if c.Reason != want {
			return fmt.Errorf("P7: change %d, %+v: the reason should be %d", i, c, want)
		}
		if starts[c.Task] && stops[c.Task] {
			return fmt.Errorf("P7: task %d is started and stopped: that is a move", c.Task)
		}
	}
	return nil
}

// copies checks P1 and P4 task by task.
func (o *outcome) copies() error {
	missing := make([]int, o.tasks)
	for _, u := range o.plan.Unplaced {
		if u.Task < 0 || int(u.Task) >= o.tasks || u.Copies < 1 {
			return fmt.Errorf("P7: unplaced %+v", u)
		}
		if u.Worker == rebalance.None {
			missing[u.Task] += int(u.Copies)
		}
	}
	for t, target := range o.target {
		p, k, q := o.onOpen[t], o.onClosed[t], o.onDraining[t]
		total := p + k + q
		has := fmt.Sprintf("task %d (wants %d, %d frozen, %d answering, target %d) gets %d open, %d closed, %d draining",
			t, o.pr.Want[t], o.frozen[t], o.answering[t], target, p, k, q)
		if total > target {
			return fmt.Errorf("P1: %s", has)
		}
		if total < min(int(o.pr.Want[t]), o.answering[t]) {
			return fmt.Errorf("P4: %s", has)
		}
		if total+missing[t] != target {
			return fmt.Errorf("P7: %s, and %d are said to be missing", has, missing[t])
		}
		if o.free() && total != min(target, len(o.open)+o.kept[t]+o.draining[t]) {
			return fmt.Errorf("P1: %s", has)
		}
		if o.plan.Deferred > 0 {
			continue
		}
		if o.free() && p+k != min(target, len(o.open)+o.kept[t]) {
			return fmt.Errorf("P1: %s", has)
		}
		if q != min(o.draining[t], target-p-k) {
			return fmt.Errorf("P1: %s, has %d to drain", has, o.draining[t])
		}
	}
	return nil
}

// unplaced checks P7 for the copies without a place.
func (o *outcome) unplaced() error {
	seen := make(map[rebalance.Pair]bool)
	waiting := 0
	for i, u := range o.plan.Unplaced {
		pair := rebalance.Pair{Task: u.Task, Worker: u.Worker}
		if seen[pair] {
			return fmt.Errorf("P7: unplaced %d, %+v, comes twice", i, u)
		}
		seen[pair] = true
		if w := u.Worker; w != rebalance.None {
			switch {
			case w < 0 || int(w) >= o.workers || o.pr.States[w] != rebalance.Draining:
				return fmt.Errorf("P7: unplaced %d, %+v, does not wait on a draining worker", i, u)
			case !o.after[w][u.Task]:
				return fmt.Errorf("P7: unplaced %d, %+v, is not there", i, u)
			case u.Copies != 1:
				return fmt.Errorf("P7: unplaced %d, %+v: one copy waits on a worker", i, u)
			}
			waiting++
		}
		everywhere, avoided, full := true, true, true
		for _, w := range o.open {
			if !o.after[w][u.Task] {
				everywhere = false
				avoided = avoided && !o.mayRun(w, int(u.Task))
				full = full && (!o.mayRun(w, int(u.Task)) || o.loads[w] >= o.room(w))
			}
		}
		good := false
		switch u.Why {
		case rebalance.NoOpenWorker:
			good = len(o.open) == 0
		case rebalance.NoOtherWorker:
			good = len(o.open) > 0 && everywhere
		case rebalance.WhyForbidden:
			good = len(o.open) > 0 && !everywhere && avoided
		case rebalance.Bounded:
			good = full && !avoided
		}
		if !good && o.plan.Deferred == 0 {
			return fmt.Errorf("P7: unplaced %d, %+v, for the wrong reason (runs everywhere %t, avoided %t, full %t, %d open)",
				i, u, everywhere, avoided, full, len(o.open))
		}
	}
	draining := 0
	for _, q := range o.onDraining {
		draining += q
	}
	if waiting != draining && o.plan.Deferred == 0 {
		return fmt.Errorf("P7: %d copies stay on draining workers, %d of them listed", draining, waiting)
	}
	return nil
}

// beyond checks, where a worker holds more than its bound and there is no
// reference, that no single move is left that should be made: what is beyond a
// bound has nowhere to go, and nowhere would one make the spread better.
func (o *outcome) beyond() error {
	if !o.over || o.plan.Deferred > 0 {
		return nil
	}
	for _, w := range o.open {
		for t, runs := range o.after[w] {
			for _, v := range o.open {
				if !runs || o.after[v][t] || !o.mayRun(v, t) || o.loads[v] >= o.room(v) {
					continue
				}
				if o.loads[w] > o.room(w) || o.loads[w] > o.loads[v]+1 {
					return fmt.Errorf("P2: worker %d has bound %d and is to run %d; worker %d, which has %d, could take task %d",
						w, o.room(w), o.loads[w], v, o.loads[v], t)
				}
			}
		}
	}
	return nil
}

// level checks that closed workers keep their share: they lose no more than
// the open ones are better at running, and keep more only where each of these
// has a copy already.
func (o *outcome) level() error {
	if !o.free() || o.plan.Deferred > 0 || len(o.open) == 0 {
		return nil
	}
	least, most := o.tasks, 0
	for _, w := range o.open {
		least, most = min(least, o.loads[w]), max(most, o.loads[w])
	}
	for _, w := range o.closed {
		for t, runs := range o.after[w] {
			if runs && o.loads[w] > least+1 && o.onOpen[t] < len(o.open) {
				return fmt.Errorf("P2: closed worker %d keeps %d, among them task %d, an open one has %d", w, o.loads[w], t, least)
			}
		}
	}
	for i, c := range o.plan.Changes {
		if c.From != rebalance.None && c.Reason == rebalance.Rebalance && o.pr.States[c.From] == rebalance.Closed && o.loads[c.From] < most-1 {
			return fmt.Errorf("P2: change %d, %+v, leaves the closed worker with %d, an open one has %d", i, c, o.loads[c.From], most)
		}
	}
	return nil
}

// spread checks P2, P3 and P8 where they are promised to the unit: nothing
// restricts the open workers. What the closed ones keep is taken as given.
func (o *outcome) spread() error {
	if !o.free() || o.plan.Deferred > 0 {
		return nil
	}
	n := 0
	for _, p := range o.onOpen {
		n += p
	}
	for _, w := range o.open {
		if low := n / len(o.open); o.loads[w] != low && (o.loads[w] != low+1 || n%len(o.open) == 0) {
			return fmt.Errorf("P2: worker %d is to run %d of %d on %d workers", w, o.loads[w], n, len(o.open))
		}
	}
	adds, ok := fewestAdds(o.reading, o.onOpen)
	switch {
	case !ok:
		return fmt.Errorf("P3: the reference finds no assignment")
	case o.plan.Adds != adds:
		return fmt.Errorf("P3: %d adds, %d are enough", o.plan.Adds, adds)
	case o.plan.LowerBound > adds || o.plain() && o.plan.LowerBound != adds:
		return fmt.Errorf("P8: lower bound %d, the minimum is %d", o.plan.LowerBound, adds)
	}
	return nil
}
