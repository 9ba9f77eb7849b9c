package term

import (
	"maps"
	"slices"
	"time"
)

// Snapshot is a fleet as a term left it. It does not change. Its numbers of tasks are those
// of the fleet, which may free them in the next term.
type Snapshot struct {
	Workers []Record

	runs     [][]int32        // of the workers, in their order; shared with other snapshots
	tasks    int              // more than any number of a task
	losses   map[int32][]loss // as in Fleet
	breakers *breakers        // nil if they hold nothing
	ran      []int32          // tasks that ran before, among those that failed, changed or wait

	massLossSince, massLossEnded, silentSince, waitUntil time.Time // as in Fleet

	storm    storm
	singleIn uint64           // as in Fleet
	falls    map[string]falls // as in Fleet
	moved    map[int32]moved  // as in Fleet
}

// Record is a worker as a term left it, in a form that is cheap to make.
type Record struct {
	Serial   uint64
	State    State
	Draining bool
	Heard    bool
	// Repeats: its last answer lists a task twice.
	Repeats   bool
	initial   bool
	pins      int32
	Since     time.Time
	Took      time.Duration // the call of its last answer
	Standing  *Standing
	unsettled *unsettled   // nil for most
	Rules     *WorkerRules // nil for most
	host      string
}

// Standing is the first of the consecutive terms that left a worker in a state. It does
// not change.
type Standing struct {
	State State
	Moment
}

// Counts holds how many workers are in each state.
type Counts struct {
	Answering, Silent, Lost     int
	Draining, Late, Quarantined int
	// Running counts the tasks of the answering workers that are not late.
	Running int
	// Spread is the difference between the largest and the smallest number of tasks on
	// an open worker.
	Spread int
}

// Count counts the workers.
func (f *Fleet) Count() (c Counts) {
	least, most := -1, 0
	for _, w := range f.Workers {
		switch w.State {
		case Answering:
			c.Answering++
			if w.Late {
				c.Late++
			} else {
				c.Running += len(w.runs)
			}
		case Silent:
			c.Silent++
		case Lost:
			c.Lost++
		}
		if w.Draining {
			c.Draining++
		}
		quarantined := f.Quarantined(w)
		if quarantined {
			c.Quarantined++
		}
		if w.State == Answering && !w.Draining && !quarantined {
			most = max(most, len(w.runs))
			if least < 0 || len(w.runs) < least {
				least = len(w.runs)
			}
		}
	}
	c.Spread = most - max(least, 0)
	return c
}

// Quarantined reports whether a worker is quarantined.
func (f *Fleet) Quarantined(w *Worker) bool {
	_, ok := f.breakers.quarantined(w.Serial)
	return ok
}

// Snapshot returns the fleet as a term leaves it, which ran at now. d is the decision for
// the tasks t. It takes O(workers + failures), and a pass over all tasks if starts failed or a worker
// is quarantined.
func (f *Fleet) Snapshot(d *Decision, t *Tasks, now Moment) *Snapshot {
	s := &Snapshot{
		Workers: make([]Record, len(f.Workers)), runs: f.shareRuns(), tasks: len(f.flags),
		massLossSince: f.massLossSince, massLossEnded: f.massLossEnded, silentSince: f.silentSince, waitUntil: f.waitUntil, storm: f.storm, singleIn: f.singleIn,
	}
	for i, w := range f.Workers {
		if w.standing == nil || w.standing.State != w.State {
			w.standing = &Standing{w.State, now}
		}
		s.Workers[i] = Record{
			Serial: w.Serial, State: w.State, Draining: w.Draining, Heard: w.Heard, initial: w.initial,
			Repeats: w.Duplicates > 0, Since: w.Since, Took: w.took, Standing: w.standing, Rules: w.Rules, host: w.Host,
		}
		if len(w.unsure) > 0 || len(w.stops) > 0 || w.restsIn > now.Term || !w.Missed.IsZero() || !w.hangs.IsZero() || w.Stuck {
			s.Workers[i].unsettled = w.clone()
		}
		if len(w.acked) == 0 && w.Duplicates == 0 {
			s.Workers[i].pins = int32(w.pins)
		}
	}
	s.losses, s.moved, s.falls = maps.Clone(f.losses), maps.Clone(f.moved), maps.Clone(f.falls)
	if !f.breakers.empty() {
		s.breakers = f.breakers.clone(nil)
		for task := range f.breakers.tasks { // see forbid
			if f.flags[task]&taskSeen != 0 {
				s.ran = append(s.ran, task)
			}
		}
	}
	if f.breakers.failedIn(now.Term) > 0 || len(f.breakers.workers) > 0 { // see findUnproven and tryWorkers
		d.Mark(func(task int32) {
			if f.flags[task]&taskSeen != 0 {
				s.ran = append(s.ran, task)
			}
		})
		for task, flags := range f.flags { // a removed task may come back
			if flags&taskSeen != 0 && !t.Expects(int32(task)) {
				s.ran = append(s.ran, int32(task))
			}
		}
	}
	return s
}

// shareRuns returns the tasks of each worker. Snapshots share them while they do not change,
// so that a term without changes copies nothing.
func (f *Fleet) shareRuns() [][]int32 {
	shared := func(w *Worker, runs []int32) bool {
		return len(w.runs) == len(runs) && (len(runs) == 0 || &w.runs[0] == &runs[0])
	}
	if !slices.EqualFunc(f.Workers, f.runs, shared) {
		f.runs = make([][]int32, len(f.Workers))
		for i, w := range f.Workers {
			f.runs[i] = w.runs
		}
	}
	return f.runs
}

// Load returns the number of tasks of the worker at an index, 0 if it is lost.
func (s *Snapshot) Load(i int) int { return len(s.runs[i]) }

// Suppose returns a fleet of the members, in the states of the snapshot. A member that is
// not in the snapshot answers without tasks. The tasks of a worker that is no member are
// lost. The numbers of the tasks must still be those of the snapshot. The fleet shares the
// workers' lists with the snapshot.
func (s *Snapshot) Suppose(cfg Config, members []Member, now time.Time) *Fleet {
	f := New(cfg)
	f.massLossSince, f.massLossEnded, f.silentSince, f.storm, f.singleIn = s.massLossSince, s.massLossEnded, s.silentSince, s.storm, s.singleIn
	f.waitUntil, f.moved = s.waitUntil, maps.Clone(s.moved)
	maps.Copy(f.falls, s.falls)
	f.grow(s.tasks)
	workers, views := make([]Worker, len(members)), make(map[uint64]*Worker, len(members))
	for i, m := range members {
		w := &workers[i]
		*w = Worker{Serial: m.Serial, Draining: m.Draining, Rules: m.Rules, Host: m.Host, Since: now, State: Answering, Heard: true}
		f.Workers = append(f.Workers, w)
		views[m.Serial] = w
	}
	maps.Copy(f.losses, s.losses)
	for i := range s.Workers {
		r, runs := &s.Workers[i], s.runs[i]
		for _, task := range runs {
			f.flags[task] |= taskSeen
		}
		w := views[r.Serial]
		if w == nil {
			if len(runs) > 0 && !r.Draining {
				f.fall(&Worker{Serial: r.Serial, Host: r.host}, now)
			}
			for _, task := range runs {
				f.lose(task, loss{worker: r.Serial})
			}
			continue
		}
		if r.Draining && !w.Draining {
			f.fall(w, now)
		}
		w.State, w.Heard, w.initial, w.Since = r.State, r.Heard, r.initial, r.Since
		w.ids, w.runs, w.pins = runs, runs, min(int(r.pins), len(runs))
		if r.unsettled != nil {
			w.unsettled = *r.unsettled.clone()
		}
		if !w.Missed.IsZero() {
			w.Missed = now // it does not answer the next term
		}
	}
	for _, task := range s.ran {
		f.flags[task] |= taskSeen
	}
	if s.breakers != nil {
		f.breakers = s.breakers.clone(f)
	}
	return f
}

// Silence assumes that a worker does not answer.
func (f *Fleet) Silence(w *Worker, now time.Time) {
	if w.State == Answering {
		w.State, w.Missed = Silent, now
	}
}

// Resume begins the term of a what-if plan: what failed is forgotten as far as it does
// not concern the expected tasks and the workers, old quarantines end, and the answers show
// that no unconfirmed start has happened.
func (f *Fleet) Resume(t *Tasks, changed func(task int32) bool, now Moment) {
	f.Begin(now)
	f.ForgetTasks(t, changed)
	f.breakers.forgetWorkers(func(serial uint64) bool { return f.bySerial(serial) == nil })
	for _, w := range f.Workers {
		if w.State == Answering {
			f.isBack(w, now.Time)
			f.recordNotStarted(w, w.unsure, now)
			w.unsure = nil
		}
	}
}
