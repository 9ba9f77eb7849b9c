package term

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/rebalance"
)

var begin = Moment{Term: 1, Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}

// world is a fleet with a naive model of its workers: what each of them runs, by index.
type world struct {
	*Fleet
	tasks Tasks
	now   Moment
	runs  []map[int32]bool
}

// newWorld returns a world of workers that run nothing, and tasks with one instance each.
func newWorld(workers, tasks int) *world {
	w := &world{
		Fleet: New(Config{Timeout: time.Second, MaxPause: time.Hour, MaxLoss: 0.5, MaxMoves: -1}),
		tasks: Tasks{Loaded: true, Instances: slices.Repeat([]int32{1}, tasks), StartFirst: make([]bool, tasks), Wanted: tasks},
		now:   begin,
	}
	members := make([]Member, workers)
	for i := range members {
		members[i].Serial = uint64(i) + 1
		w.runs = append(w.runs, make(map[int32]bool))
	}
	w.Join(members, w.now.Time, func(int) Set { return nil })
	return w
}

// next begins a term, a minute after the last one, in which all workers answer but
// those that are silent.
func (w *world) next(silent ...int) {
	w.now = Moment{Term: w.now.Term + 1, Time: w.now.Time.Add(time.Minute)}
	w.Begin(w.now)
	for i := range w.Workers {
		if !slices.Contains(silent, i) {
			w.answer(i)
		}
	}
	w.ClearFailures(w.now)
	for _, i := range silent {
		w.Workers[i].NoAnswer(true, false, w.now.Time, time.Hour)
	}
}

// answer lists the tasks of a worker in the order in which the leader remembers them, because
// the first ones move.
func (w *world) answer(i int) (returned bool) {
	var list []int32
	for task := range w.runs[i] {
		list = append(list, task)
	}
	known := w.Workers[i].holds()
	slices.SortFunc(list, func(a, b int32) int {
		return cmp.Or(cmp.Compare(slices.Index(known, a), slices.Index(known, b)), cmp.Compare(a, b))
	})
	return w.Answer(w.Workers[i], Answer{Tasks: list, Changed: true, At: w.now.Time}, w.now)
}

// write carries out changes. answer returns the answer to each write.
func (w *world) write(changes []Change, answer func(at int32, start bool) handover.Result) {
	out := w.Write(changes, false)
	for call, ok := out.Machine.Next(); ok; call, ok = out.Machine.Next() {
		write := call.Writes[0]
		r := Result{Answer: answer(call.Worker, write.Start)}
		if r.Answer != handover.Done {
			r.Err = errors.New("not done")
		}
		task, runs := changes[write.Change].Task, w.runs[call.Worker]
		switch {
		case r.Answer != handover.Done:
		case write.Start:
			runs[task] = true
		default:
			delete(runs, task)
		}
		out.Ended(call.Worker, write, &r, w.now)
		out.Machine.Done(call, []handover.Result{r.Answer}, false, false)
	}
	out.Learn(false, w.now)
}

func done(int32, bool) handover.Result { return handover.Done }

// check compares the view of each worker with the model.
func (w *world) check(t *testing.T) {
	t.Helper()
	for i, worker := range w.Workers {
		view := make(map[int32]bool)
		for _, task := range worker.runs {
			require.False(t, view[task], "worker %d has task %d twice", i, task)
			view[task] = true
		}
		require.Equal(t, w.runs[i], view, "worker %d", i)
	}
}

// Whatever is answered, the view is what the workers said and acknowledged.
func TestWrites_TheViewIsWhatWasAcknowledged(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(1+r.IntN(6), 1+r.IntN(20))
		for range 12 {
			for task := range w.tasks.Instances {
				w.tasks.Instances[task] = int32(r.IntN(3))
				w.tasks.StartFirst[task] = r.IntN(2) == 0
			}
			w.next()
			w.check(t)
			d := w.Decide(&w.tasks, w.now)
			w.write(d.Changes, func(int32, bool) handover.Result {
				return []handover.Result{handover.Done, handover.Done, handover.Refused}[r.IntN(3)]
			})
			w.check(t)
		}
	}
}

// If all writes succeed, one term reaches the expected state, and the next changes nothing.
func TestDecide_Converges(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := newWorld(1+r.IntN(6), r.IntN(30))
		for i := range w.runs {
			for range r.IntN(8) {
				w.runs[i][int32(r.IntN(30))] = true
			}
		}
		w.next()
		w.write(w.Decide(&w.tasks, w.now).Changes, done)
		w.next()
		require.Empty(t, w.Decide(&w.tasks, w.now).Changes)
		c := w.Count()
		require.Equal(t, w.tasks.Wanted, c.Running)
		require.LessOrEqual(t, c.Spread, 1)
	}
}

// A what-if plan that supposes nothing is the next term.
func TestSnapshot_SupposesTheNextTerm(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(2+r.IntN(5), 1+r.IntN(20))
		var last Decision
		silent := []int{r.IntN(len(w.Workers))}
		for range 6 {
			silent = silent[:r.IntN(len(silent)+1)]
			w.next(silent...)
			last = w.Decide(&w.tasks, w.now)
			w.write(last.Changes, func(at int32, _ bool) handover.Result {
				return []handover.Result{handover.Done, handover.Refused}[(seed+uint64(at))%3/2]
			})
		}
		members := make([]Member, len(w.Workers))
		for i, worker := range w.Workers {
			members[i] = Member{Serial: worker.Serial}
		}
		s := w.Snapshot(&last, &w.tasks, w.now)
		f := s.Suppose(w.cfg, members, w.now.Time.Add(time.Minute))
		now := Moment{Term: w.now.Term + 1, Time: w.now.Time.Add(time.Minute)}
		f.Resume(&w.tasks, func(int32) bool { return false }, now)
		supposed := f.Decide(&w.tasks, now)
		w.next(silent...)
		actual := w.Decide(&w.tasks, w.now)
		require.Equal(t, supposed.Changes, actual.Changes, "seed %d", seed)
		require.Equal(t, actual.Missing, supposed.Missing)
		require.Equal(t, actual.Held, supposed.Held)
		require.Equal(t, actual.LowerBound, supposed.LowerBound)
		require.Len(t, f.Paused(now), len(w.Paused(w.now)))
	}
}

// T9: a what-if plan knows which tasks have run, because a quarantined worker is tried with one of
// those first. A task that nobody expects may come back.
func TestSnapshot_KnowsWhichTasksHaveRun(t *testing.T) {
	w := newWorld(2, 2)
	w.runs[0][0] = true
	w.next()
	delete(w.runs[0], 0)
	w.tasks.Instances[0] = 0
	w.breakers.learn(w.now, []startResult{refused(1, 2)}, nil)
	w.runs[0][1] = true // it starts elsewhere, which counts against the worker that runs nothing
	w.breakers.learn(w.now, []startResult{started(1, 1)}, nil)
	require.True(t, w.Quarantined(w.Workers[1]))
	w.next()
	last := w.Decide(&w.tasks, w.now)
	f := w.Snapshot(&last, &w.tasks, w.now).Suppose(w.cfg, []Member{{Serial: 1}, {Serial: 2}}, w.now.Time)
	require.NotZero(t, f.flags[0]&taskSeen)
}

// T9: when a suspect's own pause is over, it pauses only on the worker where it failed last.
func TestDecide_ASuspectPausesOnOneWorker(t *testing.T) {
	for name, test := range map[string]struct {
		fails   []uint64 // the workers, by serial
		pauses  int      // terms from then on
		pausing []rebalance.Pair
	}{
		"no suspect":               {[]uint64{2, 2, 2}, 4, []rebalance.Pair{{Task: 0, Worker: 1}}},
		"often on another worker":  {[]uint64{2, 2, 2, 2, 3}, 4, nil},
		"often on the same worker": {[]uint64{3, 2, 2, 2, 2}, 4, []rebalance.Pair{{Task: 0, Worker: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(4, 1)
			w.runs[0][0] = true
			for _, worker := range test.fails {
				w.next()
				w.breakers.learn(w.now, []startResult{refused(0, worker)}, nil)
			}
			for range test.pauses {
				w.next()
			}
			w.Decide(&w.tasks, w.now)
			require.ElementsMatch(t, test.pausing, w.decider.problem.Forbidden)
		})
	}
}

// T9: tasks that run but failed to start last move after the others. Otherwise the one move after a
// pause of all moves would fail for ever.
func TestT9_TasksThatFailedMoveLast(t *testing.T) {
	w := newWorld(2, 5)
	for task := range w.tasks.Instances {
		w.runs[0][int32(task)] = true
	}
	w.next()
	w.breakers.learn(w.now, []startResult{refused(0, 2), refused(2, 2)}, nil)
	for range 3 {
		w.next() // the pause ends
	}
	moved := func() (tasks []int32) {
		for _, c := range w.Decide(&w.tasks, w.now).Changes {
			tasks = append(tasks, c.Task)
		}
		return tasks
	}
	require.Equal(t, []int32{1, 3}, moved())
	w.tasks.Instances = []int32{1, 0, 1, 0, 0}
	require.Contains(t, moved(), int32(0), "no other task is left to move")
}

// T9: a suspect is not started where a task keeps the room because its stop fails. Such a start
// would be skipped, term after term, while another worker has room.
func TestDecide_ASuspectNeedsRoom(t *testing.T) {
	const stuck, suspect = 1, 0
	w := newWorld(2, 4)
	w.tasks.Instances[stuck], w.tasks.Wanted = 0, 3
	w.Workers[0].Rules = &WorkerRules{Share: 1, MaxTasks: 1}
	w.runs[0][stuck], w.runs[1][2], w.runs[1][3] = true, true, true
	w.next()
	stopFails := func(_ int32, start bool) handover.Result {
		return map[bool]handover.Result{true: handover.Done, false: handover.Refused}[start]
	}
	w.breakers.learn(w.now, []startResult{refused(suspect, 1), refused(suspect, 2)}, nil)
	w.write(w.Decide(&w.tasks, w.now).Changes, stopFails)
	for range 4 {
		w.next()
		w.write(w.Decide(&w.tasks, w.now).Changes, stopFails)
	}
	require.True(t, w.runs[0][stuck])
	require.True(t, w.runs[1][suspect])
}

// P10: two copies that both start first would change places, and so are skipped. A move that waits for
// the room of one of them is skipped too.
func TestDecide_AMoveThatWaitsForACircle(t *testing.T) {
	const circling, waiting = 0, 1
	w := newWorld(5, 3)
	w.tasks.Instances, w.tasks.MaxPerZone = []int32{2, 1, 1}, []int32{1, 0, 0}
	w.tasks.StartFirst = slices.Repeat([]bool{true}, 3)
	for i, zone := range []string{"a", "a", "b", "b", "b"} {
		w.Workers[i].Rules = &WorkerRules{Share: 1, Zone: zone}
	}
	w.Workers[0].Rules.MaxTasks = 1
	w.runs[0][circling], w.runs[2][circling], w.runs[4][waiting], w.runs[3][2] = true, true, true, true
	w.next()
	w.Decide(&w.tasks, w.now)
	move := func(task, from, to int32) Change {
		return Change{Change: handover.Change{Task: task, From: from, To: to, StartFirst: true}, Reason: ReasonRebalance}
	}
	w.decider.out.Changes = []Change{move(circling, 0, 3), move(circling, 2, 1), move(waiting, 4, 0)}
	w.decider.waitForRoom()
	require.Empty(t, w.decider.out.Changes)
}

// P10: a copy that moves inside a zone makes no room there for another one.
func TestDecide_AMoveInsideAZoneMakesNoRoom(t *testing.T) {
	w := newWorld(6, 1)
	w.tasks.Instances, w.tasks.MaxPerZone = []int32{3}, []int32{2}
	for i, zone := range []string{"a", "a", "a", "a", "b", "b"} {
		w.Workers[i].Rules = &WorkerRules{Share: 1, Zone: zone}
	}
	w.runs[0][0], w.runs[1][0], w.runs[4][0] = true, true, true
	w.next()
	w.Decide(&w.tasks, w.now)
	move := func(from, to int32) Change {
		return Change{Change: handover.Change{From: from, To: to}, Reason: ReasonRebalance}
	}
	w.decider.out.Changes = []Change{move(0, 2), move(4, 3), move(1, 5)}
	w.decider.waitForRoom()
	require.Len(t, w.decider.out.Changes, 3)
	require.Zero(t, w.decider.out.Changes[0].After)
	require.Equal(t, int32(3), w.decider.out.Changes[1].After)
}

// P10: a task that lacks a label, and one that would take its place for an even spread, wait for each
// other's room on full workers, and both start first. The next term moves the first one elsewhere.
func TestDecide_ACircleThatStartsFirst(t *testing.T) {
	const evicted, other = 0, 1
	w := newWorld(3, 7)
	w.tasks.StartFirst = slices.Repeat([]bool{true}, 7)
	w.tasks.Requires = [][]string{nil, {"gpu"}}
	w.tasks.Class = []int32{1, 0, 1, 1, 1, 1, 0}
	w.Workers[0].Rules = &WorkerRules{Share: 1, Labels: []string{"gpu"}}
	w.Workers[1].Rules = &WorkerRules{Share: 1, MaxTasks: 2}
	w.Workers[2].Rules = &WorkerRules{Share: 1, MaxTasks: 1, Labels: []string{"gpu"}}
	for task := range int32(7) {
		w.runs[map[int32]int{evicted: 1, other: 2, 6: 1}[task]][task] = true
	}
	w.next()
	d := w.Decide(&w.tasks, w.now)
	require.Empty(t, d.Changes)
	require.Equal(t, 1, d.Deferred)
	s := w.Snapshot(&d, &w.tasks, w.now)
	require.Equal(t, w.now.Term+1, s.Suppose(w.cfg, nil, w.now.Time).singleIn)
	w.next()
	w.write(w.Decide(&w.tasks, w.now).Changes, done)
	require.True(t, w.runs[0][evicted])
}

// T4: a worker without an answer is late first, silent if its call failed, and lost when
// a call fails at the end of the grace period.
func TestT4_NoAnswer(t *testing.T) {
	const grace = 10 * time.Second
	for name, test := range map[string]struct {
		after  []time.Duration // of the terms without an answer
		missed bool
		state  State
		late   bool
	}{
		"not called":                      {[]time.Duration{time.Second}, false, Answering, true},
		"not called again":                {[]time.Duration{time.Second, 9 * time.Second}, false, Answering, true},
		"not called for the grace period": {[]time.Duration{10 * time.Second}, false, Silent, false},
		"failed":                          {[]time.Duration{time.Second}, true, Silent, false},
		"failed just before the end":      {[]time.Duration{time.Second, 9 * time.Second}, true, Silent, false},
		"failed at the end":               {[]time.Duration{time.Second, 10 * time.Second}, true, Lost, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(3, 1)
			for i := range w.Workers {
				w.answer(i)
			}
			worker := w.Workers[0]
			for _, after := range test.after {
				at := begin.Time.Add(after)
				worker.NoAnswer(test.missed, false, at, grace)
				lost, massLoss := w.Judge(at, grace)
				require.Equal(t, test.state == Lost && after == 10*time.Second, len(lost) == 1)
				require.False(t, massLoss)
			}
			require.Equal(t, test.state, worker.State)
			require.Equal(t, test.late, worker.Late)
			require.Equal(t, test.state != Answering, w.answer(0), "it answers again")
			require.Equal(t, Answering, worker.State)
		})
	}
}

// T4: what may have started on a worker counts until it answers, and a lost one holds
// nothing.
func TestT4_UnsureStarts(t *testing.T) {
	w := newWorld(1, 1)
	w.next()
	w.write(w.Decide(&w.tasks, w.now).Changes, func(int32, bool) handover.Result { return handover.Unknown })
	require.Equal(t, 1, w.Workers[0].Holds())
	w.next(0)
	require.Equal(t, 1, w.Decide(&w.tasks, w.now).Held)
	require.Empty(t, w.Decide(&w.tasks, w.now).Changes)
	w.MarkLost(w.Workers[0])
	require.Zero(t, w.Workers[0].Holds())
	w.next()
	require.Zero(t, w.Workers[0].Holds())
	require.Equal(t, ReasonLost, w.Decide(&w.tasks, w.now).Changes[0].Reason)
}

// T5: while more than half of the workers are silent, none is lost, and for a timeout
// after that.
func TestT5_Judge(t *testing.T) {
	w := newWorld(4, 0)
	for i := range w.Workers {
		w.answer(i)
	}
	for i, step := range []struct {
		after    time.Duration
		silent   int
		lost     int
		massLoss bool
	}{
		{10 * time.Second, 3, 0, true},
		{20 * time.Second, 2, 0, true},
		{20*time.Second + 999*time.Millisecond, 2, 0, true},
		{21 * time.Second, 2, 2, false},
	} {
		now := begin.Time.Add(step.after)
		for k, worker := range w.Workers {
			if k < step.silent {
				worker.NoAnswer(true, false, now, time.Second)
			} else {
				w.Answer(worker, Answer{At: now}, Moment{Term: 2, Time: now})
			}
		}
		lost, massLoss := w.Judge(now, time.Second)
		require.Len(t, lost, step.lost, "step %d", i)
		require.Equal(t, step.massLoss, massLoss, "step %d", i)
	}
}

// A worker that takes the name of a removed one may run what was started there last.
func TestJoin_TakesTheLegacy(t *testing.T) {
	w := newWorld(2, 2)
	w.next()
	w.write(w.Decide(&w.tasks, w.now).Changes, done)
	gone := w.Workers[0]
	started := slices.Clone(gone.runs)
	members := []Member{{Serial: 2}, {Serial: 3}}
	w.Retain(members, w.now.Time)
	require.Len(t, w.Workers, 1)
	w.Join(members, w.now.Time, func(i int) Set {
		require.Equal(t, 1, i)
		return gone.Legacy()
	})
	require.Equal(t, started, w.Workers[1].holds())
	require.False(t, w.Workers[1].initial)
	w.Retain(nil, w.now.Time)
	require.Empty(t, w.Workers)
}

// A task that is listed twice counts once, and the last acknowledged write decides.
func TestAnswer_Duplicates(t *testing.T) {
	w := newWorld(1, 9)
	worker := w.Workers[0]
	w.Answer(worker, Answer{Tasks: []int32{7, 3, 7, 7}, Changed: true, Pinned: 9}, begin)
	require.Equal(t, []int32{7, 3}, worker.runs)
	require.Equal(t, 2, worker.Duplicates)
	require.Equal(t, 4, worker.pins, "no more than are listed")
	worker.acked = []ack{{7, false}, {3, false}, {3, true}, {5, true}, {5, false}, {1, true}, {1, true}}
	w.settle(worker)
	require.Equal(t, []int32{3, 1}, worker.runs)
	w.Answer(worker, Answer{}, begin)
	require.Equal(t, []int32{7, 3}, worker.runs, "it repeats its answer")
}

// An acknowledged stop settles a start that was unsure.
func TestWrites_AStopSettlesAnUnsureStart(t *testing.T) {
	w := newWorld(1, 1)
	w.Workers[0].unsure = Set{0: {}}
	out := w.Write([]Change{{Change: handover.Change{From: 0, To: handover.None}}}, false)
	out.Ended(0, handover.Write{}, &Result{Answer: handover.Done}, w.now)
	require.Zero(t, w.Workers[0].Holds())
}

// The stamps survive that their round wraps around.
func TestFleet_TheRoundWrapsAround(t *testing.T) {
	w := newWorld(1, 9)
	worker := w.Workers[0]
	w.Answer(worker, Answer{Tasks: []int32{7, 3}, Changed: true}, begin)
	for round := ^uint32(0) - 3; round > 3; round++ {
		w.round = round
		worker.acked = []ack{{7, true}, {3, false}, {3, true}}
		w.settle(worker)
		require.Equal(t, []int32{7, 3}, worker.runs)
	}
}

// Stops that fail take turns, one in a term, after their pause.
func TestStops_TakeTurns(t *testing.T) {
	w := newWorld(1, 0)
	for task := range int32(3) {
		w.runs[0][task] = true
	}
	tried := make(map[int32]int)
	for range 40 {
		w.next()
		d := w.Decide(&w.tasks, w.now)
		n := 0
		for _, c := range d.Changes {
			if c.Skip == handover.NotSkipped {
				n++
				tried[c.Task]++
			}
		}
		if w.now.Term > 2 {
			require.LessOrEqual(t, n, 1)
		}
		w.write(d.Changes, func(int32, bool) handover.Result { return handover.Unknown })
	}
	require.Len(t, tried, 3)
	for _, n := range tried {
		require.InDelta(t, tried[0], n, 1)
	}
	require.Len(t, w.Paused(w.now), 3)
}

// Snapshots share the tasks of the workers as long as no worker's tasks change, and do not
// change themselves.
func TestSnapshot_SharesTasks(t *testing.T) {
	w := newWorld(2, 4)
	term := func() *Snapshot {
		w.next()
		d := w.Decide(&w.tasks, w.now)
		w.write(d.Changes, done)
		return w.Snapshot(&d, &w.tasks, w.now)
	}
	first := term()
	require.Same(t, &first.runs[0], &w.Snapshot(&Decision{}, &w.tasks, w.now).runs[0])
	w.tasks.Instances[0] = 0
	second := term()
	require.Equal(t, []int{4, 3}, []int{first.Load(0) + first.Load(1), second.Load(0) + second.Load(1)})
}
