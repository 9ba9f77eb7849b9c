package term

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var errRefused = errors.New("refused")

// leader feeds breakers with what happens to starts, one term per call of learn.
type leader struct {
	*breakers
	now   Moment
	every time.Duration   // between two terms
	busy  map[uint64]bool // the workers that run something
}

func newLeader(workers int) *leader {
	f := New(Config{MaxPause: time.Hour})
	for serial := range workers {
		f.Workers = append(f.Workers, &Worker{Serial: uint64(serial) + 1, State: Answering})
	}
	return &leader{
		breakers: f.breakers, every: time.Second, busy: make(map[uint64]bool),
		now: Moment{Term: 1, Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
	}
}

// learn ends a term with these starts, and begins the next one.
func (l *leader) learn(starts ...startResult) { l.learnStranded(nil, starts...) }

func (l *leader) learnStranded(stranded error, starts ...startResult) {
	for _, w := range l.fleet.Workers {
		w.runs = nil
		if l.busy[w.Serial] {
			w.runs = []int32{0}
		}
	}
	l.breakers.learn(l.now, starts, stranded)
	l.skip(1)
}

// skip lets terms pass in which nothing starts.
func (l *leader) skip(terms uint64) {
	l.now.Term += terms
	l.now.Time = l.now.Time.Add(time.Duration(terms) * l.every)
}

func refused(task int32, worker uint64) startResult {
	return startResult{taskOn: taskOn{Task: task, Worker: worker}, Err: errRefused}
}

func timedOut(worker uint64) startResult {
	s := refused(5, worker)
	s.TimedOut = true
	return s
}

func started(task int32, worker uint64) startResult {
	return startResult{taskOn: taskOn{Task: task, Worker: worker}}
}

func back(s startResult) startResult {
	s.Back = true
	return s
}

// paused returns the pairs that pause now.
func (l *leader) paused() (pairs []taskOn) {
	for p, pause := range l.pairs() {
		if !pause.active(l.now) {
			continue
		}
		pairs = append(pairs, p)
	}
	return pairs
}

// waits fails a start as soon as it may be tried, rounds times, and returns how
// many terms passed before each try.
func (l *leader) waits(rounds int, fail func(), active func() bool) (waits []int) {
	for range rounds {
		fail()
		n := 0
		for ; active(); n++ {
			l.skip(1)
		}
		waits = append(waits, n)
	}
	return waits
}

// Tasks

func TestTask_PausesOnAWorkerForLongerEachTime(t *testing.T) {
	l := newLeader(1)
	waits := l.waits(7, func() { l.learn(refused(5, 1)) }, func() bool { return len(l.paused()) > 0 })
	require.Equal(t, []int{1, 2, 4, 8, 16, 16, 16}, waits)
	require.Empty(t, l.suspects(), "one worker says nothing of the task")
	require.True(t, l.failing(5))
	require.True(t, l.failedOn(taskOn{Task: 5, Worker: 1}))
	require.False(t, l.failedOn(taskOn{Task: 5, Worker: 2}))
	require.Equal(t, map[uint64]bool{1: true}, l.failedWorkers())
}

func TestTask_PauseNamesTheFailure(t *testing.T) {
	l := newLeader(2)
	l.learn(refused(5, 1), refused(4, 2), refused(3, 1))
	l.skip(1)
	l.learn(refused(5, 1))
	var found []string
	for pair, p := range l.pairs() {
		if !p.active(l.now) {
			continue
		}
		require.ErrorIs(t, p.Err, errRefused)
		found = append(found, fmt.Sprint(pair, " until ", p.Until, " after ", p.Failures))
	}
	require.Equal(t, []string{"{5 1} until 6 after 2"}, found, "the others are over")
}

func TestTask_IsSuspectAfterTwoWorkers(t *testing.T) {
	l := newLeader(3)
	l.learn(refused(5, 1))
	require.Equal(t, []taskOn{{Task: 5, Worker: 1}}, l.paused())
	l.learn(refused(5, 2))
	require.Len(t, l.suspects(), 1)
	s := l.suspects()[0]
	require.EqualValues(t, 5, s.Task)
	require.EqualValues(t, 2, s.Last)
	require.True(t, s.Pause.active(l.now))
	require.Equal(t, 2, s.Pause.Failures)
	require.ErrorIs(t, s.Pause.Err, errRefused)
	l.skip(1)
	s = l.suspects()[0]
	require.False(t, s.Pause.active(l.now), "but it remains suspect")
}

// The pause of a suspect that is refused grows with each round of as many failures
// as there are workers.
func TestTask_SuspectThatIsRefused(t *testing.T) {
	l := newLeader(3)
	l.learn(refused(5, 1))
	worker := uint64(1)
	waits := l.waits(12, func() {
		worker = worker%3 + 1
		l.learn(refused(5, worker))
	}, func() bool { s := l.suspects()[0]; return s.Pause.active(l.now) })
	require.Equal(t, []int{1, 2, 2, 2, 4, 4, 4, 8, 8, 8, 16, 16}, waits)
}

// The pause of a suspect that times out grows each time.
func TestTask_SuspectThatTimesOut(t *testing.T) {
	l := newLeader(100)
	l.learn(timedOut(1))
	var waits []int
	for worker := uint64(2); worker < 9; worker++ {
		l.learn(timedOut(worker))
		n := 0
		for s := l.suspects(); s[0].Pause.active(l.now); n++ {
			l.skip(1)
		}
		waits = append(waits, n)
	}
	require.Equal(t, []int{2, 4, 8, 8, 8, 8, 8}, waits)
}

// Suspects come in the order of their last tries.
func TestTask_SuspectsInOrder(t *testing.T) {
	l := newLeader(5)
	l.learn(refused(7, 1), refused(3, 1))
	l.learn(refused(7, 2))
	l.learn(refused(3, 2), refused(9, 1))
	l.learn(refused(9, 2))
	l.learn(refused(7, 3))
	var order []int32
	for _, s := range l.suspects() {
		order = append(order, s.Task)
	}
	require.Equal(t, []int32{3, 9, 7}, order)
}

func TestTask_AStartClearsIt(t *testing.T) {
	l := newLeader(3)
	l.busy = map[uint64]bool{1: true, 2: true, 3: true}
	l.learn(refused(5, 1))
	l.learn(refused(5, 2))
	l.learn(started(5, 3))
	require.Empty(t, l.suspects())
	require.Empty(t, l.paused())
	require.False(t, l.failing(5))
	l.learn(refused(5, 1))
	require.Equal(t, []taskOn{{Task: 5, Worker: 1}}, l.paused())
	l.skip(1)
	require.Empty(t, l.paused(), "the pauses begin at one term again")
}

// A failure that is long past does not count.
func TestTask_OldFailuresAreForgotten(t *testing.T) {
	for name, learnt := range map[string]bool{"in quiet terms": false, "in terms with starts": true} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(3)
			l.learn(refused(5, 1))
			l.skip(64)
			if learnt {
				l.learn(started(6, 2))
				require.False(t, l.failing(5))
			} else {
				l.skip(1)
			}
			l.learn(refused(5, 2))
			require.Empty(t, l.suspects())
			require.Equal(t, []taskOn{{Task: 5, Worker: 2}}, l.paused())
		})
	}
}

// Time

// A pause ends by its time too, but holds for a term whatever the time is.
func TestPause_EndsByItsTime(t *testing.T) {
	for every, want := range map[time.Duration][]int{
		time.Minute:      {1, 2, 4, 8, 16, 16},
		20 * time.Minute: {1, 2, 2, 2, 2, 2},
		time.Hour:        {1, 1, 1, 1, 1, 1},
		24 * time.Hour:   {1, 1, 1, 1, 1, 1},
	} {
		t.Run(every.String(), func(t *testing.T) {
			l := newLeader(1)
			l.every = every
			waits := l.waits(len(want), func() { l.learn(refused(5, 1)) }, func() bool { return len(l.paused()) > 0 })
			require.Equal(t, want, waits)
		})
	}
}

// Workers

func (l *leader) quarantined(workers ...uint64) (found []uint64) {
	for _, w := range workers {
		if _, ok := l.breakers.quarantined(w); ok {
			found = append(found, w)
		}
	}
	return found
}

// A failure counts against its worker once the task runs elsewhere.
func TestWorker_IsQuarantinedForTwoTasks(t *testing.T) {
	l := newLeader(2)
	l.busy[1] = true
	l.learn(refused(5, 1), refused(6, 1), refused(7, 1))
	require.Empty(t, l.quarantined(1, 2))
	l.learn(started(5, 2))
	require.Empty(t, l.quarantined(1, 2), "one task may be to blame itself")
	l.learn(started(6, 2))
	require.Equal(t, []uint64{1}, l.quarantined(1, 2))
	p, _ := l.breakers.quarantined(1)
	require.Equal(t, 1, p.Failures)
	require.EqualValues(t, 5, p.Until, "term 3, and one term of pause")
	require.ErrorIs(t, p.Err, errRefused)
}

func TestWorker_IsQuarantinedForOneTaskIfItRunsNothing(t *testing.T) {
	l := newLeader(2)
	l.learn(refused(5, 1))
	require.Empty(t, l.quarantined(1), "nothing has started elsewhere")
	l.learn(started(5, 2))
	require.Equal(t, []uint64{1}, l.quarantined(1, 2))
}

// The same task twice is one task.
func TestWorker_OneTaskIsNotTwo(t *testing.T) {
	l := newLeader(2)
	l.busy[1] = true
	for range 5 {
		l.learn(refused(5, 1))
		l.learn(started(5, 2))
	}
	require.Empty(t, l.quarantined(1, 2))
}

// A task that no worker starts quarantines none.
func TestWorker_PoisonQuarantinesNone(t *testing.T) {
	l := newLeader(3)
	for i := range 60 {
		l.learn(refused(5, uint64(i%3)+1), refused(6, uint64((i+1)%3)+1))
		require.Empty(t, l.quarantined(1, 2, 3))
	}
}

// A task that runs fails to move to more than half of the workers. It counts against
// none of them.
func TestWorker_ATaskThatFailsAnywhereQuarantinesNone(t *testing.T) {
	l := newLeader(5)
	move := func(task int32, worker uint64) startResult {
		s := refused(task, worker)
		s.Elsewhere = true
		return s
	}
	l.learn(move(5, 1))
	require.Equal(t, []uint64{1}, l.quarantined(1, 2, 3), "it runs nothing")
	l.learn(move(5, 2))
	require.Equal(t, []uint64{1, 2}, l.quarantined(1, 2, 3))
	l.learn(move(5, 3))
	require.Empty(t, l.quarantined(1, 2, 3))

	l.busy[1] = true
	l.learn(move(6, 1), move(7, 1), move(6, 2))
	require.Equal(t, []uint64{1, 2}, l.quarantined(1, 2, 3))
	l.learn(move(6, 4))
	require.Empty(t, l.quarantined(1, 2, 3), "one task is left against worker 1")
	l.learn(move(8, 1))
	require.Equal(t, []uint64{1}, l.quarantined(1, 2, 3))
	p, _ := l.breakers.quarantined(1)
	require.Equal(t, 1, p.Failures)
	l.skip(2)
	l.learn(refused(5, 1))
	p, _ = l.breakers.quarantined(1)
	require.Equal(t, 1, p.Failures, "that was no trial")
}

// A task that fails anywhere ends no quarantine that other tasks are the reason for.
func TestWorker_ATaskThatFailsAnywhereClearsNoOtherWorker(t *testing.T) {
	l := newLeader(5)
	l.learn(refused(1, 5), started(1, 4))
	require.Equal(t, []uint64{5}, l.quarantined(5))
	l.busy[5] = true
	l.learn(refused(9, 1))
	l.learn(refused(9, 2))
	l.learn(refused(9, 3))
	require.Equal(t, []uint64{5}, l.quarantined(5))
}

// After each failed trial the pause is longer.
func TestWorker_TrialsThatFail(t *testing.T) {
	l := newLeader(2)
	l.learn(refused(5, 1), started(5, 2))
	task := int32(10)
	l.skip(1)
	waits := l.waits(6, func() {
		task++
		l.learn(refused(task, 1))
	}, func() bool { p, _ := l.breakers.quarantined(1); return p.active(l.now) })
	require.Equal(t, []int{2, 4, 8, 16, 16, 16}, waits)
}

// A start sent before the quarantine is not a trial, and several failures in one term
// count as one.
func TestWorker_FailuresOfOneTermCountOnce(t *testing.T) {
	l := newLeader(2)
	l.learn(refused(5, 1))
	l.learn(started(5, 2), refused(6, 1), refused(7, 1))
	p, _ := l.breakers.quarantined(1)
	require.Equal(t, 1, p.Failures)
	l.skip(1)
	l.learn(refused(8, 1), refused(9, 1))
	p, _ = l.breakers.quarantined(1)
	require.Equal(t, 2, p.Failures)
}

func TestWorker_AStartClearsIt(t *testing.T) {
	l := newLeader(2)
	l.learn(refused(5, 1), started(5, 2))
	l.skip(1)
	l.learn(started(6, 1))
	require.Empty(t, l.quarantined(1, 2))
	require.True(t, l.empty())
	l.busy[1] = true
	l.learn(refused(7, 1), started(7, 2))
	require.Empty(t, l.quarantined(1), "it counts from its last start")
}

// A start also ends what its worker failed before with other tasks. Their pauses remain.
func TestWorker_AStartForgetsItsOlderFailures(t *testing.T) {
	for name, test := range map[string]struct {
		happens     func(*leader)
		quarantined []uint64
	}{
		"a start after them":       {func(l *leader) { l.learn(refused(5, 1), refused(6, 1), started(7, 1)) }, nil},
		"a start between them":     {func(l *leader) { l.learn(refused(5, 1), started(7, 1), refused(6, 1)) }, nil},
		"a start before them":      {func(l *leader) { l.learn(started(7, 1), refused(5, 1), refused(6, 1)) }, []uint64{1}},
		"a start elsewhere":        {func(l *leader) { l.learn(refused(5, 1), refused(6, 1), started(7, 3)) }, []uint64{1}},
		"a start given back":       {func(l *leader) { l.learn(refused(5, 1), refused(6, 1), back(started(7, 1))) }, nil},
		"a start with one counted": {func(l *leader) { l.learn(refused(5, 1), refused(6, 1), started(5, 2), started(7, 1)) }, nil},
		"a start known later": {func(l *leader) {
			l.learn(refused(5, 1), refused(6, 1), refused(7, 1))
			l.happened(taskOn{Task: 7, Worker: 1}, l.now)
		}, nil},
		"a start known later, between them": {func(l *leader) {
			l.learn(refused(5, 1), refused(7, 1), refused(6, 1))
			l.happened(taskOn{Task: 7, Worker: 1}, l.now)
		}, nil},
		"a start known later, before them": {func(l *leader) {
			l.learn(refused(7, 1), refused(5, 1), refused(6, 1))
			l.happened(taskOn{Task: 7, Worker: 1}, l.now)
		}, []uint64{1}},
		"a start known later, with one counted": {func(l *leader) {
			l.learn(refused(7, 1), refused(5, 1), refused(6, 1), started(5, 2))
			l.happened(taskOn{Task: 7, Worker: 1}, l.now)
		}, []uint64{1}},
		"a start known when it counts": {func(l *leader) {
			l.learn(refused(7, 1), refused(5, 1), refused(6, 1), started(5, 2), started(7, 3))
			l.happened(taskOn{Task: 7, Worker: 1}, l.now)
		}, []uint64{1}},
		"a start, and failures again": {func(l *leader) {
			l.learn(refused(5, 1), started(7, 1), refused(6, 1))
			l.learn(refused(5, 1))
		}, []uint64{1}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(5)
			l.busy[1] = true
			test.happens(l)
			require.True(t, l.failedOn(taskOn{Task: 6, Worker: 1}))
			l.learn(started(5, 2), started(6, 2))
			require.Equal(t, test.quarantined, l.quarantined(1, 2, 3, 4, 5))
			l.forgetWorkers(func(uint64) bool { return true })
			require.Empty(t, l.cleared)
		})
	}
}

// A quarantine in which no start is tried does not last for ever.
func TestWorker_AnOldQuarantineEnds(t *testing.T) {
	l := newLeader(2)
	l.learn(refused(5, 1), started(5, 2))
	require.Equal(t, []uint64{1}, l.quarantined(1, 2))
	l.skip(60)
	l.forgetQuarantines(l.now)
	require.Equal(t, []uint64{1}, l.quarantined(1, 2))
	l.skip(10)
	l.forgetQuarantines(l.now)
	require.Empty(t, l.quarantined(1, 2))
	require.True(t, l.empty())
}

// A start whose answer was lost, and that is listed, is a start, whichever worker comes first.
func TestWorker_SucceededAfterAll(t *testing.T) {
	for _, order := range [][]uint64{{1, 2}, {2, 1}} {
		l := newLeader(9)
		l.learn(refused(6, 2), refused(7, 2), started(6, 3), started(7, 3))
		require.Equal(t, []uint64{2}, l.quarantined(1, 2, 3))
		l.learn(timedOut(2))
		l.learn(timedOut(1))
		for _, w := range order {
			l.happened(taskOn{Task: 5, Worker: w}, l.now)
		}
		require.Empty(t, l.suspects())
		require.False(t, l.failing(5))
		require.Empty(t, l.quarantined(1, 2, 3))
	}
}

// It clears what failed before it on its worker, even if its task has started elsewhere since.
func TestWorker_AStartKnownLaterClearsIt(t *testing.T) {
	l := newLeader(9)
	l.busy[2] = true
	l.learn(refused(6, 2), refused(7, 2), started(6, 3), started(7, 3))
	require.Equal(t, []uint64{2}, l.quarantined(1, 2, 3))
	l.learn(timedOut(2))
	l.learn(started(5, 1))
	l.happened(taskOn{Task: 5, Worker: 2}, l.now)
	require.Empty(t, l.quarantined(1, 2, 3))
	require.Empty(t, l.workers)

	l.busy[1] = true
	l.learn(refused(5, 1), refused(7, 1), refused(6, 1), started(5, 2), started(6, 2))
	require.Equal(t, []uint64{1}, l.quarantined(1, 2))
	l.happened(taskOn{Task: 7, Worker: 1}, l.now)
	require.Empty(t, l.quarantined(1, 2), "only 6 failed after it")
	require.Len(t, l.workers, 1)
}

// Nothing is held against a worker when all that failed there has happened.
func TestWorker_AllHappened(t *testing.T) {
	l := newLeader(9)
	l.busy[1] = true
	l.learn(refused(6, 1), started(6, 2))
	l.learn(refused(8, 1))
	l.learn(refused(7, 1), started(7, 2))
	require.Equal(t, []uint64{1}, l.quarantined(1))
	l.happened(taskOn{Task: 7, Worker: 1}, l.now)
	require.Empty(t, l.quarantined(1))
	l.happened(taskOn{Task: 8, Worker: 1}, l.now)
	require.Empty(t, l.workers)
}

// What failed after such a start still counts.
func TestWorker_FailedAfterAStartKnownLater(t *testing.T) {
	l := newLeader(9)
	l.learn(timedOut(2))
	l.learn(timedOut(1))
	l.learn(timedOut(3))
	l.happened(taskOn{Task: 5, Worker: 1}, l.now)
	require.False(t, l.failedOn(taskOn{Task: 5, Worker: 1}))
	require.True(t, l.failing(5))
	require.Empty(t, l.suspects(), "it failed on one worker since")
	p := l.pauseOn(taskOn{Task: 5, Worker: 3})
	require.True(t, p.active(l.now))
	require.Equal(t, []uint64{2}, l.quarantined(1, 2, 3, 4), "it has not started since it failed on 3")

	l.learn(refused(5, 4))
	require.Len(t, l.suspects(), 1)
	l.learn(started(5, 2))
	require.Equal(t, []uint64{3, 4}, l.quarantined(1, 2, 3, 4))
}

// Moves

// A give-back that fails counts against no worker and no task.
func TestMoves_AGiveBackThatFails(t *testing.T) {
	l := newLeader(2)
	l.learnStranded(errRefused, refused(5, 2), back(refused(5, 1)))
	require.False(t, l.failedOn(taskOn{Task: 5, Worker: 1}))
	require.Empty(t, l.suspects())
	require.Empty(t, l.quarantined(1, 2))
	p := l.moves
	require.True(t, p.active(l.now))
	require.ErrorIs(t, p.Err, errRefused)
}

func TestMoves_PauseForLongerEachTime(t *testing.T) {
	l := newLeader(2)
	waits := l.waits(6, func() { l.learnStranded(errRefused) }, func() bool { p := l.moves; return p.active(l.now) })
	require.Equal(t, []int{1, 2, 4, 8, 16, 32}, waits)
}

// A start that turns out to have happened ends the pause, unless it was tried in an earlier
// term.
func TestMoves_AStartKnownLaterEndsThePause(t *testing.T) {
	l := newLeader(3)
	l.learnStranded(errRefused, refused(5, 1))
	l.happened(taskOn{Task: 5, Worker: 1}, l.now)
	require.True(t, l.empty())
	l.learn(refused(5, 1))
	l.learnStranded(errRefused, refused(6, 2))
	l.happened(taskOn{Task: 5, Worker: 1}, l.now)
	p := l.moves
	require.True(t, p.active(l.now))
}

func TestMoves_AStartEndsThePause(t *testing.T) {
	for name, test := range map[string]struct {
		start startResult
		ends  bool
	}{
		"a start":             {started(6, 1), true},
		"a give-back":         {back(started(6, 1)), false},
		"a start that failed": {refused(6, 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeader(2)
			l.learnStranded(errRefused)
			l.learn(test.start)
			require.Equal(t, test.ends, l.moves.Failures == 0)
		})
	}
	t.Run("in the same term", func(t *testing.T) {
		l := newLeader(2)
		l.learnStranded(errRefused, started(6, 1))
		require.Zero(t, l.moves, "starts do not fail as such")
	})
}

// A give-back that succeeds shows that the receiver is to blame. The task pauses there: otherwise
// it would move there in each term, and back.
func TestMoves_AGiveBackIsAStartElsewhere(t *testing.T) {
	l := newLeader(2)
	l.learn(refused(5, 2), back(started(5, 1)))
	require.Equal(t, []uint64{2}, l.quarantined(1, 2))
	require.Equal(t, []taskOn{{Task: 5, Worker: 2}}, l.paused())
	l.learn(started(5, 2))
	require.Empty(t, l.paused())
	require.Empty(t, l.quarantined(1, 2))
}

// What goes away

func TestForgetWorkers(t *testing.T) {
	l := newLeader(3)
	l.learn(refused(5, 1), refused(6, 1), refused(6, 2), started(7, 3))
	l.learn(refused(8, 1), started(8, 3))
	require.Equal(t, []uint64{1}, l.quarantined(1, 2, 3))
	l.forgetWorkers(func(worker uint64) bool { return worker == 1 })
	require.Empty(t, l.quarantined(1, 2, 3))
	require.False(t, l.failing(5))
	require.True(t, l.failedOn(taskOn{Task: 6, Worker: 2}))
	require.False(t, l.failedOn(taskOn{Task: 6, Worker: 1}))
	l.forgetWorkers(func(uint64) bool { return true })
	require.True(t, l.empty())
}

// What a task that is gone said of its worker stays.
func TestForgetTasks(t *testing.T) {
	l := newLeader(2)
	l.learn(refused(5, 1), refused(6, 1), started(5, 2))
	l.forgetTasks(func(int32) bool { return true })
	require.False(t, l.failing(6))
	require.Empty(t, l.paused())
	require.Equal(t, []uint64{1}, l.quarantined(1, 2))
}

func TestTasks(t *testing.T) {
	l := newLeader(3)
	require.True(t, l.empty())
	l.busy[1] = true
	l.learn(refused(5, 1), started(5, 2), refused(6, 1))
	require.False(t, l.empty())
	marked := make(Set)
	l.fleet.Mark(marked.add)
	require.Equal(t, []int32{0, 5, 6}, marked.sorted(), "0 runs")
}

// A task that has asked to leave a worker counts against neither, also once it runs elsewhere.
func TestTask_LeavesAWorker(t *testing.T) {
	l := newLeader(3)
	for _, task := range []int32{5, 6, 7} {
		l.leaves(taskOn{Task: task, Worker: 1}, errRefused, l.now)
	}
	l.learn(started(5, 2), started(6, 3))
	require.Empty(t, l.quarantined(1))
	require.False(t, l.failing(5))
	require.Empty(t, l.suspects())
	require.Equal(t, []taskOn{{5, 1}, {6, 1}, {7, 1}}, l.paused())
	marked := make(Set)
	l.fleet.Mark(marked.add)
	require.Subset(t, marked.sorted(), []int32{5, 6, 7})
	l.learn(refused(7, 1), started(6, 1))
	require.Equal(t, []taskOn{{5, 1}, {7, 1}}, l.paused(), "a failure besides is not listed twice")
	c := l.clone(l.fleet)
	c.forgetTasks(func(task int32) bool { return task == 5 })
	c.forgetWorkers(func(uint64) bool { return true })
	require.True(t, c.empty())
	require.Len(t, l.left, 2)
	l.skip(15)
	require.Empty(t, l.paused())
}

// A clone is equal, and shares nothing.
func TestClone(t *testing.T) {
	l := newLeader(3)
	l.busy[1] = true
	l.learn(refused(5, 1), started(5, 2), refused(6, 1), refused(7, 1), refused(7, 2))
	l.learnStranded(errRefused)
	before := maps.Collect(l.pairs())
	c := l.clone(l.fleet)
	require.Equal(t, l.breakers, c)

	c.learn(l.now, []startResult{refused(6, 1), refused(6, 3), refused(200, 1), started(200, 2)}, nil)
	_, ok := c.quarantined(1)
	require.True(t, ok, "tasks 5 and 200")
	c.forgetTasks(func(int32) bool { return true })
	require.Equal(t, before, maps.Collect(l.pairs()))
	require.Empty(t, l.quarantined(1, 2, 3))
	require.Len(t, l.suspects(), 1)
}

// In a long outage a task fails on every worker. It remembers the last eight, which
// count against them when it starts at last.
func TestTask_RemembersFewWorkers(t *testing.T) {
	l := newLeader(100)
	for worker := uint64(1); worker <= 50; worker++ {
		l.learn(refused(5, worker))
	}
	var failed []uint64
	for p := range l.pairs() {
		failed = append(failed, p.Worker)
	}
	require.Equal(t, []uint64{43, 44, 45, 46, 47, 48, 49, 50}, failed)
	l.learn(started(5, 60))
	require.Empty(t, l.quarantined(42))
	require.Equal(t, []uint64{43, 50}, l.quarantined(43, 50), "they run nothing, so one task is enough")
}
