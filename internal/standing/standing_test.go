package standing_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/standing"
)

var errNo = errors.New("no")

func pair(task int32, worker uint64) standing.Pair { return standing.Pair{Task: task, Worker: worker} }

func failed(task int32, worker uint64) standing.Start {
	return standing.Start{Pair: pair(task, worker), Err: errNo}
}

func succeeded(task int32, worker uint64) standing.Start {
	return standing.Start{Pair: pair(task, worker)}
}

// among returns a predicate that holds for what is listed.
func among[N comparable](all ...N) func(N) bool {
	return func(n N) bool { return slices.Contains(all, n) }
}

func yes[N any](N) bool { return true }
func no[N any](N) bool  { return false }

// closed returns the workers closed in the term, those on probation with a
// question mark.
func closed(b *standing.Book, term uint64, workers ...uint64) []string {
	all := []string{}
	for _, w := range workers {
		switch is, probation := b.Closed(w, term); {
		case probation:
			all = append(all, fmt.Sprint(w, "?"))
		case is:
			all = append(all, fmt.Sprint(w))
		}
	}
	return all
}

// avoided returns the pairs that the book lists for a term.
func avoided(b *standing.Book, term uint64) []standing.Pair {
	all := []standing.Pair{}
	for p := range b.Pairs(term) {
		all = append(all, p)
	}
	return all
}

func TestBook_NothingIsHeldAgainstAnyoneAtFirst(t *testing.T) {
	b := standing.New()
	require.True(t, b.Empty())
	require.False(t, b.Has(pair(1, 1)))
	require.False(t, b.Concerns(1))
	require.False(t, b.Avoided(pair(1, 1), 1))
	require.False(t, b.FailedElsewhere(pair(1, 1)))
	require.Empty(t, closed(b, 1, 1))
	require.Empty(t, avoided(b, 1))
}

// Every time that it is tried it fails again: 1, 2, 4, … terms go by, 64 at
// most.
func TestBook_BackoffDoublesUpTo64Terms(t *testing.T) {
	b := standing.New()
	var waits []uint64
	last := uint64(0)
	for term := uint64(1); len(waits) < 9; term++ {
		if b.Avoided(pair(7, 1), term) {
			continue
		}
		if last > 0 {
			waits = append(waits, term-last-1)
		}
		last = term
		b.Learn(term, []standing.Start{failed(7, 1)}, yes, no)
	}
	require.Equal(t, []uint64{1, 2, 4, 8, 16, 32, 64, 64, 64}, waits)
}

func TestBook_ManyFailuresDoNotOverflow(t *testing.T) {
	b := standing.New()
	for term := range uint64(100) {
		b.Learn(term, []standing.Start{failed(7, 1)}, no, no)
	}
	require.True(t, b.Avoided(pair(7, 1), 99+64))
	require.False(t, b.Avoided(pair(7, 1), 99+65))
	require.Equal(t, []string{"1?"}, closed(b, 99+65, 1))
}

func TestBook_ASuccessEndsARow(t *testing.T) {
	b := standing.New()
	b.Learn(1, []standing.Start{failed(7, 1)}, yes, no)
	b.Learn(3, []standing.Start{failed(7, 1)}, yes, no)
	b.Learn(6, []standing.Start{succeeded(7, 1)}, yes, no)
	require.True(t, b.Empty())
	b.Learn(9, []standing.Start{failed(7, 1)}, yes, no)
	require.True(t, b.Avoided(pair(7, 1), 10))
	require.False(t, b.Avoided(pair(7, 1), 11), "it starts again with one term")
}

func TestBook_Blame(t *testing.T) {
	type learned struct {
		starts []standing.Start
		runs   []uint64
		seen   []int32
		closed []string
	}
	for name, c := range map[string]learned{
		"the worker runs nothing": {
			starts: []standing.Start{failed(7, 1)},
			closed: []string{"1"},
		},
		"the worker runs something and the task ran before": {
			starts: []standing.Start{failed(7, 1)}, runs: []uint64{1}, seen: []int32{7},
			closed: []string{"1"},
		},
		"the worker runs something and the task never ran": {
			starts: []standing.Start{failed(7, 1)}, runs: []uint64{1},
			closed: []string{},
		},
		"the worker runs nothing and the task ran before": {
			starts: []standing.Start{failed(7, 1)}, seen: []int32{7},
			closed: []string{"1"},
		},
		"a start succeeded in the same term, earlier": {
			starts: []standing.Start{succeeded(8, 1), failed(7, 1)}, runs: []uint64{1}, seen: []int32{7, 8},
			closed: []string{},
		},
		"a start succeeded in the same term, later": {
			starts: []standing.Start{failed(7, 1), succeeded(8, 1)}, runs: []uint64{1}, seen: []int32{7, 8},
			closed: []string{},
		},
		"a start succeeded elsewhere": {
			starts: []standing.Start{failed(7, 1), succeeded(7, 2)}, runs: []uint64{2}, seen: []int32{7},
			closed: []string{"1"},
		},
		"one of its tasks is to blame, another is not": {
			starts: []standing.Start{failed(7, 1), failed(8, 1)}, runs: []uint64{1}, seen: []int32{8},
			closed: []string{"1"},
		},
		"every worker refuses the task": {
			starts: []standing.Start{failed(7, 1), failed(7, 2), failed(7, 3)}, runs: []uint64{1, 2, 3},
			closed: []string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := standing.New()
			b.Learn(1, c.starts, among(c.runs...), among(c.seen...))
			require.Equal(t, c.closed, closed(b, 2, 1, 2, 3))
			for _, s := range c.starts {
				require.Equal(t, s.Err != nil, b.Avoided(s.Pair, 2), "the pair %v", s.Pair)
			}
		})
	}
}

// A worker that refuses 25 tasks in one term has failed once, not 25 times.
func TestBook_AWorkerFailsOnceATerm(t *testing.T) {
	b := standing.New()
	var starts []standing.Start
	for task := range int32(25) {
		starts = append(starts, failed(task, 1))
	}
	b.Learn(1, starts, no, no)
	for w, r := range b.Workers() {
		require.EqualValues(t, 1, w)
		require.Equal(t, 1, r.Failures)
		require.EqualValues(t, 3, r.Until)
		require.ErrorIs(t, r.Err, errNo)
	}
	require.Equal(t, []string{"1"}, closed(b, 2, 1))
	require.Equal(t, []string{"1?"}, closed(b, 3, 1), "on probation")
}

func TestBook_AWorkerIsOpenOnceItTakesATask(t *testing.T) {
	b := standing.New()
	// 1 is closed for 7 and 8, and the poison 9 is held against the pair alone.
	b.Learn(1, []standing.Start{failed(7, 1), failed(8, 1), failed(9, 1), failed(6, 2)}, among[uint64](1, 2), among[int32](6, 7, 8))
	require.Equal(t, []string{"1", "2"}, closed(b, 2, 1, 2))

	b.Learn(3, []standing.Start{succeeded(7, 1)}, yes, yes)
	require.Equal(t, []string{"2?"}, closed(b, 3, 1, 2))
	require.False(t, b.Has(pair(7, 1)))
	require.False(t, b.Has(pair(8, 1)), "what the worker was to blame for is forgotten")
	require.True(t, b.Has(pair(9, 1)), "what the task was to blame for is not")
	require.True(t, b.Has(pair(6, 2)), "nor is what others did")
}

func TestBook_ATaskThatFailedElsewhereClosesNobodyElse(t *testing.T) {
	b := standing.New()
	b.Learn(1, []standing.Start{failed(7, 1)}, yes, yes)
	b.Learn(2, []standing.Start{failed(7, 2)}, yes, yes)
	require.Equal(t, []string{"1"}, closed(b, 2, 1, 2), "7 has run, and fails wherever it comes")
	b.Learn(3, []standing.Start{failed(8, 2)}, yes, yes)
	require.Equal(t, []string{"1?", "2"}, closed(b, 3, 1, 2), "8 failed nowhere else")
}

func TestBook_AFailedProbeDoublesTheBackoff(t *testing.T) {
	b := standing.New()
	b.Learn(1, []standing.Start{failed(7, 1)}, no, no)
	b.Learn(3, []standing.Start{failed(8, 1)}, no, no)
	require.Equal(t, []string{"1"}, closed(b, 5, 1))
	require.Equal(t, []string{"1?"}, closed(b, 6, 1))
	require.False(t, b.Avoided(pair(8, 1), 5), "the pair failed once only")
}

func TestBook_FailedElsewhere(t *testing.T) {
	b := standing.New()
	b.Learn(1, []standing.Start{failed(7, 1), failed(8, 2), failed(9, 1), failed(9, 2)}, no, no)
	require.False(t, b.FailedElsewhere(pair(6, 1)), "nowhere")
	require.False(t, b.FailedElsewhere(pair(7, 1)), "here alone")
	require.True(t, b.FailedElsewhere(pair(8, 1)), "there alone")
	require.True(t, b.FailedElsewhere(pair(9, 1)), "here and there")

	b.Learn(3, []standing.Start{succeeded(9, 2), succeeded(8, 2)}, no, no)
	require.False(t, b.FailedElsewhere(pair(8, 1)))
	require.False(t, b.FailedElsewhere(pair(9, 1)), "no longer")
}

func TestBook_AStartThatHappenedDidNotFail(t *testing.T) {
	b := standing.New()
	b.Learn(1, []standing.Start{failed(7, 1)}, no, no)
	require.True(t, b.Concerns(1))
	b.Succeeded(pair(7, 1))
	require.True(t, b.Empty())
	require.False(t, b.Concerns(1))
	require.Empty(t, closed(b, 2, 1))

	b.Succeeded(pair(7, 1)) // twice does no harm
	require.True(t, b.Empty())
}

// A failure is forgotten once its pair could have been tried again for 64 terms.
func TestBook_Expire(t *testing.T) {
	b := standing.New()
	b.Learn(1, []standing.Start{failed(7, 1), failed(8, 1)}, yes, no)
	b.Learn(3, []standing.Start{failed(8, 1)}, yes, no)
	b.Expire(3 + 64)
	require.Equal(t, []int32{7, 8}, tasks(b))
	b.Expire(3 + 65)
	require.Equal(t, []int32{8}, tasks(b))
	require.True(t, b.Has(pair(8, 1)))
	require.True(t, b.Concerns(1))
	b.Expire(6 + 65)
	require.True(t, b.Empty())
	require.False(t, b.Concerns(1))
}

// What may be tried again costs the listing of what may not nothing but a look.
func TestBook_OldPairsAreNotSorted(t *testing.T) {
	allocs := func(pairs int32) float64 {
		b := standing.New()
		for task := range pairs {
			b.Learn(1, []standing.Start{failed(task, 1)}, yes, no)
		}
		return testing.AllocsPerRun(10, func() { require.Empty(t, avoided(b, 3)) })
	}
	require.Equal(t, allocs(0), allocs(1000)) //nolint:testifylint // whole numbers
}

func TestBook_SaysWhatFailed(t *testing.T) {
	b := standing.New()
	b.Learn(1, []standing.Start{failed(9, 1), failed(7, 1), failed(8, 2)}, yes, no)
	require.Equal(t, []int32{7, 9}, b.TasksOf(1))
	require.Equal(t, []int32{8}, b.TasksOf(2))
	require.Empty(t, b.TasksOf(3))
	b.Succeeded(pair(7, 1))
	require.Equal(t, []int32{9}, b.TasksOf(1))
	require.False(t, b.Failed(7))
	require.True(t, b.Failed(9))
}

func TestBook_Forget(t *testing.T) {
	setUp := func() *standing.Book {
		b := standing.New()
		b.Learn(1, []standing.Start{failed(7, 1), failed(8, 1), failed(7, 2)}, no, no)
		return b
	}
	t.Run("a worker", func(t *testing.T) {
		b := setUp()
		b.ForgetWorkers(among[uint64](1))
		require.Equal(t, []standing.Pair{pair(7, 2)}, avoided(b, 2))
		require.Equal(t, []string{"2"}, closed(b, 2, 1, 2))
		require.False(t, b.Concerns(1))
		require.True(t, b.Concerns(2))
	})
	t.Run("a task", func(t *testing.T) {
		b := setUp()
		b.ForgetTasks(among[int32](7))
		require.Equal(t, []standing.Pair{pair(8, 1)}, avoided(b, 2))
		require.Equal(t, []string{"1", "2"}, closed(b, 2, 1, 2), "workers are another matter")
		require.Equal(t, []int32{8}, tasks(b))
	})
	t.Run("all tasks", func(t *testing.T) {
		b := setUp()
		b.ForgetTasks(yes)
		require.Empty(t, tasks(b))
		require.Equal(t, []string{"1?", "2?"}, closed(b, 3, 1, 2))
		require.False(t, b.Empty(), "the workers are closed still")
	})
	t.Run("everything", func(t *testing.T) {
		b := setUp()
		b.ForgetWorkers(yes)
		require.True(t, b.Empty())
		require.Empty(t, closed(b, 2, 1, 2))
		require.Empty(t, tasks(b))
	})
}

func tasks(b *standing.Book) (all []int32) {
	b.Tasks(func(task int32) { all = append(all, task) })
	slices.Sort(all)
	return all
}

func TestBook_TellsInAFixedOrder(t *testing.T) {
	want := []standing.Pair{pair(3, 1), pair(9, 1), pair(1, 2), pair(3, 2)}
	for range 20 { // maps have a different order each time
		b := standing.New()
		b.Learn(1, []standing.Start{failed(3, 2), failed(9, 1), failed(1, 2), failed(3, 1)}, no, no)
		require.Equal(t, want, avoided(b, 2))
		require.Empty(t, avoided(b, 3), "they may be tried again")
		var workers []uint64
		for w := range b.Workers() {
			workers = append(workers, w)
		}
		require.Equal(t, []uint64{1, 2}, workers)
		require.Equal(t, []int32{1, 3, 9}, tasks(b))
	}
}

func TestBook_IterationMayStop(t *testing.T) {
	b := standing.New()
	b.Learn(1, []standing.Start{failed(1, 1), failed(2, 2)}, no, no)
	for p := range b.Pairs(2) {
		require.Equal(t, pair(1, 1), p)
		break
	}
	for w := range b.Workers() {
		require.EqualValues(t, 1, w)
		break
	}
}
