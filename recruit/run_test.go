package recruit_test

// A job that is run: within its budget, or left behind.

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/recruit"
)

func TestS3_TheBudgetIsTheDeadline(t *testing.T) {
	for given, deadline := range map[time.Duration]time.Duration{
		0:                     45 * time.Millisecond, // the default
		10 * time.Millisecond: 9 * time.Millisecond,
		2 * time.Second:       2*time.Second - 5*time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			var opts []recruit.Option
			if given > 0 {
				opts = append(opts, recruit.WithBudget(given))
			}
			type key struct{}
			ctx := context.WithValue(t.Context(), key{}, "value")
			began := time.Now()
			r := always(t, func(ctx context.Context) error {
				until, ok := ctx.Deadline()
				require.True(t, ok)
				require.Equal(t, deadline, until.Sub(began))
				require.Equal(t, "value", ctx.Value(key{}))
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), recruit.ErrBudget)
				return nil // has done what could be done in the time
			}, opts...)
			require.Equal(t, recruit.Done, r.Enlist(ctx))
			require.Equal(t, deadline, time.Since(began))
			require.Equal(t, deadline, job(t, r).Spent)
		})
	}
}

func TestS3_AJobThatIgnoresItsContextIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		let := make(chan struct{})
		r := always(t, func(context.Context) error { <-let; return errors.New("too late") })

		began := time.Now()
		require.Equal(t, recruit.Overdue, r.Enlist(ctx))
		require.Equal(t, budget, time.Since(began), "the caller waits for the budget, and no longer")
		require.Equal(t, recruit.JobStats{Name: "x", Rate: 1, Recruited: 1, Overdue: 1, Behind: 1}, job(t, r))

		for range 100 {
			require.Equal(t, recruit.Dismissed, r.Enlist(ctx), "it is not recruited again")
		}
		require.Equal(t, budget, time.Since(began), "and costs nobody a moment")

		time.Sleep(time.Hour)
		let <- struct{}{}
		synctest.Wait()
		require.Equal(t, recruit.JobStats{
			Name: "x", Rate: 1, Recruited: 1, Dismissed: 100, Overdue: 1, Failed: 1, Spent: time.Hour + budget,
		}, job(t, r), "what came of it in the end is counted")

		close(let)
		require.Equal(t, recruit.Failed, r.Enlist(ctx), "now it is recruited again")
		require.EqualValues(t, 100, r.Dismissed())
	})
}

// Callers that had begun when the first was left behind are left behind too;
// the job comes back when the last of them has.
func TestS3_UntilAllThatWereLeftBehindHaveReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		r := always(t, func(context.Context) error { <-let; return nil })
		outcomes := make(chan recruit.Outcome)
		for range 3 {
			go func() { outcomes <- r.Enlist(t.Context()) }()
			time.Sleep(budget / 10)
		}
		for range 3 {
			require.Equal(t, recruit.Overdue, <-outcomes)
		}
		for behind := 3; behind > 0; behind-- {
			require.Equal(t, behind, job(t, r).Behind)
			require.Equal(t, recruit.Dismissed, r.Enlist(t.Context()))
			let <- struct{}{}
			synctest.Wait()
		}
		close(let)
		require.Equal(t, recruit.Done, r.Enlist(t.Context()))
	})
}

func TestS3_OneThatBlocksTakesNothingFromTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		r, err := recruit.New(recruit.WithLimit(1), recruit.WithSeed(3))
		require.NoError(t, err)
		require.NoError(t, r.Install("blocks", 0.5, recruit.JobFunc(func(context.Context) error { <-let; return nil })))
		require.NoError(t, r.Install("works", 0.5, recruit.JobFunc(nothing)))
		began := time.Now()
		for range 1000 {
			r.Enlist(t.Context())
		}
		require.Equal(t, budget, time.Since(began), "one caller in a thousand has lost a moment")
		jobs := r.Jobs()
		require.EqualValues(t, 1, jobs[0].Recruited)
		require.InDelta(t, 500, jobs[1].Recruited, 5*16)
		require.EqualValues(t, 1000, jobs[0].Dismissed+jobs[1].Recruited+1)
		close(let)
		require.NoError(t, r.Close(t.Context()))
	})
}

func TestS3_ErrorsAndPanicsAreCountedAndLogged(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		do       recruit.JobFunc
		panicked uint64
		logs     []string
	}{
		"error": {func(context.Context) error { return boom }, 0, []string{
			`level=WARN msg="job failed" job=x took=0s err=boom`,
		}},
		"panic": {func(context.Context) error { panic("boom") }, 1, []string{
			`level=ERROR msg="job panicked" job=x err="panic: boom" stack=`,
			`level=WARN msg="job failed" job=x took=0s err="panic: boom"`,
		}},
		"panic with an error": {func(context.Context) error { panic(boom) }, 1, []string{
			`level=ERROR msg="job panicked" job=x err="panic: boom" stack=`,
			`level=WARN msg="job failed" job=x took=0s err="panic: boom"`,
		}},
		"goexit": {func(context.Context) error { runtime.Goexit(); return nil }, 1, []string{
			`level=WARN msg="job failed" job=x took=0s err="left by runtime.Goexit"`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, text := newLog()
				runs := 0
				r := always(t, func(ctx context.Context) error { runs++; return c.do(ctx) }, recruit.WithLogger(log))
				require.Equal(t, recruit.Failed, r.Enlist(t.Context()))
				require.Equal(t, 1, runs, "nobody tries again")
				synctest.Wait()
				lines := strings.Split(strings.TrimSpace(text.String()), "\n")
				require.Len(t, lines, len(c.logs))
				for i, want := range c.logs {
					require.Contains(t, lines[i], want)
				}
				if strings.HasPrefix(name, "panic") {
					require.Contains(t, lines[0], "run_test.go", "the stack of who panicked")
				}

				require.Equal(t, recruit.Failed, r.Enlist(t.Context()), "the next recruit tries")
				require.Equal(t, recruit.JobStats{Name: "x", Rate: 1, Recruited: 2, Failed: 2, Panicked: 2 * c.panicked}, job(t, r))
				require.NoError(t, r.Close(t.Context()))
			})
		})
	}
}

func TestS3_ACallerThatGoesTakesAMomentAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A job that ends with its context is in time.
		r := always(t, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Millisecond)
			return context.Cause(ctx)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		began := time.Now()
		require.Equal(t, recruit.Failed, r.Enlist(ctx))
		require.Equal(t, 21*time.Millisecond, time.Since(began))

		require.Equal(t, recruit.Dismissed, r.Enlist(ctx), "it has gone already")
		require.EqualValues(t, 1, job(t, r).Dismissed)

		// One that ignores it is left behind, long before the budget is up.
		let := make(chan struct{})
		r = always(t, func(context.Context) error { <-let; return nil })
		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		began = time.Now()
		require.Equal(t, recruit.Overdue, r.Enlist(ctx))
		require.Equal(t, 25*time.Millisecond, time.Since(began))
		let <- struct{}{}
		synctest.Wait()

		// Near the end of the budget, that is the earlier.
		ctx, cancel = context.WithTimeout(t.Context(), 48*time.Millisecond)
		defer cancel()
		began = time.Now()
		require.Equal(t, recruit.Overdue, r.Enlist(ctx))
		require.Equal(t, budget, time.Since(began))
		close(let)
		require.NoError(t, r.Close(t.Context()))
	})
}

func TestS3_CloseWaitsForWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		r := always(t, func(context.Context) error { <-let; return nil })
		require.Equal(t, recruit.Overdue, r.Enlist(t.Context()))

		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("no patience"))
		defer cancel()
		require.EqualError(t, r.Close(ctx), "close recruiter: 1 runs have not returned: no patience")
		require.Equal(t, recruit.Dismissed, r.Enlist(t.Context()))
		require.Empty(t, r.Jobs())
		require.ErrorIs(t, r.Install("y", 0.5, recruit.JobFunc(nothing)), recruit.ErrClosed)

		close(let)
		require.NoError(t, r.Close(t.Context()))
		require.NoError(t, r.Close(ctx), "nothing left wins over a context that has ended")
	})
}

func TestS3_CloseWhileOthersEnlist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int32
		r := always(t, func(context.Context) error {
			running.Add(1)
			defer running.Add(-1)
			time.Sleep(time.Millisecond)
			return nil
		})
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				time.Sleep(time.Duration(i%5) * time.Millisecond)
				r.Enlist(t.Context())
			})
		}
		time.Sleep(2 * time.Millisecond)
		require.NoError(t, r.Close(t.Context()))
		require.Zero(t, running.Load(), "one runs, and Close has returned")
		wg.Wait()
		require.Zero(t, running.Load())
	})
}
