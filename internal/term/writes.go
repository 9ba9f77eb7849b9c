package term

import (
	"cmp"
	"slices"

	"github.com/f8949c05/orchestrator/internal/handover"
)

// Writes records how the writes of a decision end. Use [Fleet.Write].
type Writes struct {
	// Machine decides which write may be sent next.
	Machine *handover.Machine

	fleet   *Fleet
	changes []Change
	starts  []startResult
	net     []int8  // by change: acknowledged starts less acknowledged stops
	unable  []error // by change: a failed start of a task that was still expected
}

// Write begins the writes of a decision. Workers whose last answer was fast come first.
// batches: a call may hold several writes.
func (f *Fleet) Write(changes []Change, batches bool) *Writes {
	w := &Writes{fleet: f, changes: changes, net: make([]int8, len(changes)), unable: make([]error, len(changes))}
	bare := make([]handover.Change, len(changes))
	involved := make([]bool, len(f.Workers))
	for i := range changes {
		bare[i] = changes[i].Change
		for _, end := range []int32{bare[i].From, bare[i].To} {
			if end != handover.None {
				involved[end] = true
			}
		}
	}
	var order []int32
	for i, yes := range involved {
		if yes {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(i, j int32) int { return cmp.Compare(f.Workers[i].took, f.Workers[j].took) })
	w.Machine = handover.New(bare, len(f.Workers), order, batches)
	w.Machine.FirstMoves(f.cfg.FirstMoves)
	return w
}

// Result is how a write ended.
type Result struct {
	Answer handover.Result
	Err    error // nil if it is done
	// TimedOut: its call used up its time, or that of another write in it did.
	TimedOut bool
	// Ignored: neither the task nor the worker caused the failure.
	Ignored bool
	// Silent: the write itself had no answer by its deadline.
	Silent bool
	// Elsewhere: the worker refuses the task because it has asked to run elsewhere.
	Elsewhere bool
}

// Ended records the result of a write to a worker.
func (w *Writes) Ended(at int32, write handover.Write, r *Result, now Moment) {
	c, worker := &w.changes[write.Change], w.fleet.Workers[at]
	switch {
	case write.Start && r.Answer == handover.Done:
		w.fleet.flags[c.Task] |= taskSeen
		w.fleet.find(c.Task, c.Loser)
		worker.acked = append(worker.acked, ack{task: c.Task, start: true})
		w.net[write.Change]++
	case r.Answer == handover.Done:
		delete(worker.unsure, c.Task)
		worker.acked = append(worker.acked, ack{task: c.Task})
		w.net[write.Change]--
	case write.Start && r.Answer != handover.Refused:
		w.Unsure(at, c.Task)
	}
	switch {
	case r.Ignored:
	case write.Start && r.Elsewhere:
		w.fleet.breakers.leaves(taskOn{Task: c.Task, Worker: worker.Serial}, r.Err, now)
	case write.Start:
		w.unable[write.Change] = r.Err
		if r.Answer != handover.Stopping {
			w.starts = append(w.starts, startResult{
				taskOn: taskOn{Task: c.Task, Worker: worker.Serial},
				Err:    r.Err, TimedOut: r.TimedOut, Rejected: r.Answer == handover.Refused, Back: write.Back, Elsewhere: c.StartFirst && c.From != handover.None,
			})
		}
	case r.Err == nil:
		worker.stopSucceeded(c.Task)
	default:
		surplus := c.To == handover.None || w.net[write.Change] > 0 // the other copy runs
		w.fleet.stopFailed(worker, c.Task, surplus, r, now)
	}
}

// Unsure records a start on a worker that may have happened.
func (w *Writes) Unsure(at, task int32) {
	worker := w.fleet.Workers[at]
	if worker.unsure == nil {
		worker.unsure = make(Set)
	}
	worker.unsure.add(task)
}

// Net returns how many starts of change i were acknowledged, less the stops.
func (w *Writes) Net(i int) int8 { return w.net[i] }

// Learn applies the results to the fleet. deposed: the writes were cut short, because
// another leader writes now. Learn takes O(workers), a step for each write, and O(tasks)
// for each worker written to.
func (w *Writes) Learn(deposed bool, now Moment) {
	f := w.fleet
	for _, worker := range f.Workers {
		f.settle(worker)
	}
	w.rest(now.Term + 1)
	var stranded error
	for i := range w.changes {
		c := &w.changes[i]
		if o, _ := w.Machine.Outcome(i); o == handover.OutDone && c.Reason == ReasonRebalance && f.decider.expect.weight != nil {
			if f.moved == nil {
				f.moved = make(map[int32]moved)
			}
			f.moved[c.Task] = moved{now.Time, f.Workers[len(f.Workers)-1].Serial}
		}
		// Neither the receiver nor the source is known to have started the task.
		if c.isMove() && w.net[i] < 0 && stranded == nil && !deposed {
			stranded = w.unable[i]
		}
	}
	f.breakers.learn(now, w.starts, stranded)
}

// settle applies the acknowledged writes of a term to the worker's tasks in one pass,
// which takes O(tasks + writes).
func (f *Fleet) settle(w *Worker) {
	if len(w.acked) == 0 {
		return
	}
	// The last write for a task decides. Stops are stamped with one round, and starts
	// with the next.
	stops, starts := f.nextRound(), f.nextRound()
	if starts < stops {
		stops, starts = f.nextRound(), f.nextRound()
	}
	for _, a := range w.acked {
		f.stamps[a.task] = stops
		if a.start {
			f.stamps[a.task] = starts
		}
	}
	runs := make([]int32, 0, len(w.runs)+len(w.acked))
	for _, id := range w.runs {
		if f.stamps[id] != stops {
			runs = append(runs, id)
			f.stamps[id] = 0 // present, so that it is not appended again
		}
	}
	for _, a := range w.acked {
		if f.stamps[a.task] == starts {
			runs = append(runs, a.task)
			f.stamps[a.task] = 0
		}
	}
	w.runs = runs
}

// rest lets workers gain nothing in the next term that could not begin all their starts, or failed
// several and acknowledged none. Otherwise missing tasks would wait for a slow worker although
// others have room, and healthy tasks would move to a worker whose starts failed.
func (w *Writes) rest(next uint64) {
	failed := make(map[uint64]int)
	for _, s := range w.starts {
		if s.Err == nil {
			failed[s.Worker] -= len(w.starts)
		} else if !s.Back {
			failed[s.Worker]++
		}
	}
	for serial, n := range failed {
		if worker := w.fleet.bySerial(serial); n > 1 && worker != nil {
			worker.restsIn = next
		}
	}
	for i := range w.changes {
		_, skip := w.Machine.Outcome(i)
		if c := &w.changes[i]; c.From == handover.None && (skip == handover.WindowClosed || skip == handover.WorkerTimedOut) {
			w.fleet.Workers[c.To].restsIn = next
		}
	}
}
