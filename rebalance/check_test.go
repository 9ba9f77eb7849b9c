package rebalance_test

// Checks of a plan against the clauses P1 to P8 and P24, from the problem alone.

import (
	"fmt"
	"slices"

	"github.com/f8949c05/orchestrator/rebalance"
)

// reading is a problem in the form that the checks use.
type reading struct {
	pr                *rebalance.Problem
	tasks, workers    int
	held              [][]bool // by worker and task
	pinned            [][]bool // likewise
	open, quarantined []int    // workers
	forbidden         map[rebalance.Pair]bool
	isPinned          bool // some copy is
	// Copies by task: on frozen workers, on all others, on draining ones, on quarantined ones.
	frozen, answering, draining, kept []int
	// target is how many copies each task is to have outside the frozen workers.
	target []int
}

func read(pr *rebalance.Problem) *reading {
	r := &reading{
		pr: pr, tasks: len(pr.Want), workers: len(pr.States),
		held:      make([][]bool, len(pr.States)),
		pinned:    make([][]bool, len(pr.States)),
		forbidden: make(map[rebalance.Pair]bool),
		frozen:    make([]int, len(pr.Want)), answering: make([]int, len(pr.Want)),
		draining: make([]int, len(pr.Want)), kept: make([]int, len(pr.Want)),
		target: make([]int, len(pr.Want)),
	}
	for w, list := range pr.Running {
		r.held[w], r.pinned[w] = make([]bool, r.tasks), make([]bool, r.tasks)
		for i, t := range list {
			r.held[w][t] = true
			if pr.Pinned != nil && i >= len(list)-int(pr.Pinned[w]) && pr.States[w] != rebalance.Frozen {
				r.pinned[w][t], r.isPinned = true, true
			}
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
			if holds && pr.States[w] == rebalance.Quarantined {
				r.kept[t]++
			}
		}
	}
	for w, s := range pr.States {
		switch s {
		case rebalance.Open:
			r.open = append(r.open, w)
		case rebalance.Quarantined:
			r.quarantined = append(r.quarantined, w)
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

// free reports whether nothing restricts which open worker may run what.
func (r *reading) free() bool { return !r.isPinned && len(r.forbidden) == 0 }

// plain reports whether the minimum of Adds is promised. Pinned copies do not restrict
// tasks that are wanted once.
func (r *reading) plain() bool {
	once := r.isPinned && len(r.forbidden) == 0 && slices.Max(r.pr.Want) <= 1
	return (r.free() || once) && len(r.quarantined) == 0
}

// mayRun reports whether a worker may run a task after the plan.
func (r *reading) mayRun(worker, task int) bool {
	if r.held[worker][task] {
		return true
	}
	pair := rebalance.Pair{Task: int32(task), Worker: int32(worker)}
	return r.pr.States[worker] == rebalance.Open && !r.forbidden[pair]
}

// outcome is a plan, carried out.
type outcome struct {
	*reading
	plan  rebalance.Plan
	after [][]bool // by worker and task
	// Copies by task after the plan: on open, quarantined, draining workers.
	onOpen, onQuarantined, onDraining []int
	loads                             []int // by worker
	waits                             []int // by task: pinned copies that stay on draining workers
}

// carryOut applies a plan. The error describes a change that is not allowed.
func carryOut(r *reading, plan rebalance.Plan) (*outcome, error) {
	o := &outcome{
		reading: r, plan: plan, after: make([][]bool, r.workers), loads: make([]int, r.workers),
		onOpen: make([]int, r.tasks), onQuarantined: make([]int, r.tasks), onDraining: make([]int, r.tasks),
		waits: make([]int, r.tasks),
	}
	for w := range o.after {
		o.after[w] = slices.Clone(r.held[w])
	}
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
			case r.pinned[w][c.Task] && c.To != rebalance.None:
				return nil, fmt.Errorf("P24: change %d, %+v, moves a pinned copy", i, c)
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
			if o.after[w][c.Task] {
				return nil, fmt.Errorf("P1: change %d, %+v, adds what was added already", i, c)
			}
			o.after[w][c.Task] = true
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
			case rebalance.Quarantined:
				o.onQuarantined[t]++
			case rebalance.Draining:
				o.onDraining[t]++
				if r.pinned[w][t] {
					o.waits[t]++
				}
			}
		}
	}
	return o, nil
}

// problem returns the state after the plan as a problem.
func (o *outcome) problem() *rebalance.Problem {
	next := *o.pr
	next.Running = make([][]int32, o.workers)
	next.Pinned = slices.Clone(o.pr.Pinned)
	for w, list := range o.after {
		var last []int32
		for t, runs := range list {
			switch {
			case runs && o.pinned[w][t]:
				last = append(last, int32(t))
			case runs:
				next.Running[w] = append(next.Running[w], int32(t))
			}
		}
		if next.Pinned != nil {
			next.Pinned[w] = int32(len(last))
		}
		next.Running[w] = append(next.Running[w], last...)
	}
	return &next
}

// squares returns the sum of squared loads of the open workers.
func (o *outcome) squares() (sum int64) {
	for _, w := range o.open {
		sum += int64(o.loads[w]) * int64(o.loads[w])
	}
	return sum
}

// clauses checks every clause on one plan. It returns the first error, which begins with
// the clause.
func (o *outcome) clauses() error {
	for _, check := range []func(*outcome) error{
		(*outcome).sums, (*outcome).bound, (*outcome).reasons, (*outcome).copies, (*outcome).stays, (*outcome).unplaced, (*outcome).level, (*outcome).spread,
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
	case p.LowerBound < 0 || p.LowerBound > p.Adds:
		return fmt.Errorf("P8: lower bound %d, but %d adds", p.LowerBound, p.Adds)
	case p.Deferred < 0 || o.pr.MaxMoves < 0 && p.Deferred != 0:
		return fmt.Errorf("P6: %d moves deferred with a limit of %d", p.Deferred, o.pr.MaxMoves)
	case o.pr.MaxMoves >= 0 && moves > o.pr.MaxMoves && (o.pr.MaxMoves == 0 || !o.isChain()):
		return fmt.Errorf("P6: %d moves with a limit of %d", moves, o.pr.MaxMoves)
	}
	return nil
}

// isChain reports whether each move of the plan makes room for another start, or ends where one
// begins. Such moves help only as a whole. Which of the copies of a task that stop is the one that moves,
// and which are surplus, is all the same.
func (o *outcome) isChain() bool {
	begins, ends, surplus := make(map[int32]int), make(map[int32]int), make(map[int32][]int32)
	for _, c := range o.plan.Changes {
		if c.To != rebalance.None {
			ends[c.To]++
		} else {
			surplus[c.Task] = append(surplus[c.Task], c.From)
		}
	}
	loose := 0
	for _, c := range o.plan.Changes {
		if c.From == rebalance.None || c.To == rebalance.None {
			continue
		}
		from := append([]int32{c.From}, surplus[c.Task]...)
		k := slices.IndexFunc(from, func(w int32) bool { return begins[w] < ends[w] })
		if k < 0 {
			loose++
			continue
		}
		begins[from[k]]++
	}
	return loose <= 1
}

// bound checks P8 from below: each copy that a task has more than before, of those
// that are not frozen, takes a start, whatever MaxMoves defers.
func (o *outcome) bound() error {
	gained := 0
	for t, before := range o.answering {
		gained += max(0, o.onOpen[t]+o.onQuarantined[t]+o.onDraining[t]-before)
	}
	if o.plan.LowerBound < gained {
		return fmt.Errorf("P8: lower bound %d, but the tasks gain %d copies", o.plan.LowerBound, gained)
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
		p, k, q := o.onOpen[t], o.onQuarantined[t], o.onDraining[t]
		total := p + k + q
		has := fmt.Sprintf("task %d (wants %d, %d frozen, %d answering, target %d) gets %d open, %d quarantined, %d draining",
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
		places := len(o.open) + o.kept[t]
		if len(o.forbidden) == 0 && total != min(target, places+o.draining[t]) {
			return fmt.Errorf("P1: %s", has)
		}
		if o.plan.Deferred > 0 {
			continue
		}
		if len(o.forbidden) == 0 && p+k != min(target-o.waits[t], places) {
			return fmt.Errorf("P1: %s", has)
		}
		if q != min(o.draining[t], target-p-k) {
			return fmt.Errorf("P1: %s, has %d to drain", has, o.draining[t])
		}
	}
	return nil
}

// stays checks P24: a pinned copy stops only if its task is unexpected, or if no
// other copy of it is left.
func (o *outcome) stays() error {
	for i, c := range o.plan.Changes {
		if c.From == rebalance.None || !o.pinned[c.From][c.Task] || o.pr.Want[c.Task] == 0 {
			continue
		}
		for w, list := range o.after {
			if list[c.Task] && o.pr.States[w] != rebalance.Frozen && !o.pinned[w][c.Task] {
				return fmt.Errorf("P24: change %d, %+v, stops a pinned copy, worker %d keeps one that is not", i, c, w)
			}
		}
	}
	return nil
}

// unplaced checks P7 for the copies without a place.
func (o *outcome) unplaced() error {
	seen := make(map[rebalance.Pair]bool)
	waiting, pinned := 0, 0
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
		everywhere, avoided := true, true
		for _, w := range o.open {
			if !o.after[w][u.Task] {
				everywhere = false
				avoided = avoided && !o.mayRun(w, int(u.Task))
			}
		}
		good := false
		if u.Worker != rebalance.None && o.pinned[u.Worker][u.Task] {
			if u.Reason != rebalance.CopyPinned {
				return fmt.Errorf("P24: unplaced %d, %+v, is pinned", i, u)
			}
			pinned++
			continue
		}
		switch u.Reason {
		case rebalance.NoOpenWorker:
			good = len(o.open) == 0
		case rebalance.NoOtherWorker:
			good = len(o.open) > 0 && everywhere
		case rebalance.NoAllowedWorker:
			good = len(o.open) > 0 && !everywhere && avoided
		}
		if !good && o.plan.Deferred == 0 {
			return fmt.Errorf("P7: unplaced %d, %+v, for the wrong reason (runs everywhere %t, avoided %t, %d open)",
				i, u, everywhere, avoided, len(o.open))
		}
	}
	draining, waits := 0, 0
	for t, q := range o.onDraining {
		draining += q
		waits += o.waits[t]
	}
	if pinned != waits {
		return fmt.Errorf("P24: %d pinned copies stay on draining workers, %d of them listed", waits, pinned)
	}
	if waiting != draining && o.plan.Deferred == 0 {
		return fmt.Errorf("P7: %d copies stay on draining workers, %d of them listed", draining, waiting)
	}
	return nil
}

// level checks that quarantined workers keep their share: they lose no more than
// makes the spread even, and keep more only if each open worker has a copy.
func (o *outcome) level() error {
	if !o.free() || o.plan.Deferred > 0 || len(o.open) == 0 {
		return nil
	}
	least, most := o.tasks, 0
	for _, w := range o.open {
		least, most = min(least, o.loads[w]), max(most, o.loads[w])
	}
	for _, w := range o.quarantined {
		for t, runs := range o.after[w] {
			if runs && o.loads[w] > least+1 && o.onOpen[t] < len(o.open) {
				return fmt.Errorf("P2: quarantined worker %d keeps %d, among them task %d, an open one has %d", w, o.loads[w], t, least)
			}
		}
	}
	for i, c := range o.plan.Changes {
		if c.From != rebalance.None && c.Reason == rebalance.Rebalance && o.pr.States[c.From] == rebalance.Quarantined && o.loads[c.From] < most-1 {
			return fmt.Errorf("P2: change %d, %+v, leaves the quarantined worker with %d, an open one has %d", i, c, o.loads[c.From], most)
		}
	}
	return nil
}

// spread checks P2, P3 and P8 if nothing restricts the open workers, because then they
// are promised exactly. It takes the tasks of the quarantined workers as given.
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
	return o.accept(o.given(), 0)
}
