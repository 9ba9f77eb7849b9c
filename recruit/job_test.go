package recruit_test

// Runs of jobs: within the budget, or left behind.

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
				return nil // the job has done what it could in the time
			}, opts...)
			require.Equal(t, recruit.Done, r.Enlist(ctx))
			require.Equal(t, deadline, time.Since(began))
			require.Equal(t, deadline, job(t, r).Spent)
		})
	}
}

// A job's context ends when the job has returned, not when its budget is used up.
func TestS3_TheContextEndsWithTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ended := make(chan error, 1)
		r := always(t, func(ctx context.Context) error {
			context.AfterFunc(ctx, func() { ended <- context.Cause(ctx) })
			return nil
		})
		require.Equal(t, recruit.Done, r.Enlist(t.Context()))
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Equal(t, began, time.Now())
	})
}

func TestS3_AJobThatIgnoresItsContextIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		let := make(chan struct{})
		r := always(t, func(context.Context) error { <-let; return errors.New("too late") })

		began := time.Now()
		require.Equal(t, recruit.Overdue, r.Enlist(ctx))
		require.Equal(t, budget, time.Since(began), "the caller waits for the budget")
		require.Equal(t, recruit.JobStats{Name: "x", Rate: 1, Recruited: 1, Overdue: 1, Behind: 1}, job(t, r))

		for range 100 {
			require.Equal(t, recruit.Dismissed, r.Enlist(ctx), "the job is not recruited again")
		}
		require.Equal(t, budget, time.Since(began), "later callers do not wait")

		time.Sleep(time.Hour)
		let <- struct{}{}
		synctest.Wait()
		require.Equal(t, recruit.JobStats{
			Name: "x", Rate: 1, Recruited: 1, Dismissed: 100, Overdue: 1, Failed: 1, Spent: time.Hour + budget,
		}, job(t, r), "the result of the run is counted")

		close(let)
		require.Equal(t, recruit.Failed, r.Enlist(ctx), "the job is recruited again")
		require.EqualValues(t, 100, r.Dismissed())
	})
}

// Runs that had begun before the first was left behind are left behind too. The job
// is recruited again when all of them have returned.
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

func TestS3_ABlockedJobDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		r := newRecruiter(t, recruit.WithLimit(1), recruit.WithSeed(3))
		require.NoError(t, r.Install("blocks", 0.5, recruit.JobFunc(func(context.Context) error { <-let; return nil })))
		require.NoError(t, r.Install("works", 0.5, recruit.JobFunc(nothing)))
		began := time.Now()
		for range 1000 {
			r.Enlist(t.Context())
		}
		require.Equal(t, budget, time.Since(began), "one caller in a thousand has waited")
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
			`level=ERROR msg="job panicked" job=x took=0s err="panic: boom" stack=`,
		}},
		"panic with an error": {func(context.Context) error { panic(boom) }, 1, []string{
			`level=ERROR msg="job panicked" job=x took=0s err="panic: boom" stack=`,
		}},
		"goexit": {func(context.Context) error { runtime.Goexit(); return nil }, 1, []string{
			`level=WARN msg="job failed" job=x took=0s err="job called runtime.Goexit"`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, text := newLog()
				runs := 0
				r := always(t, func(ctx context.Context) error { runs++; return c.do(ctx) }, recruit.WithLogger(log))
				require.Equal(t, recruit.Failed, r.Enlist(t.Context()))
				require.Equal(t, 1, runs, "no retry")
				synctest.Wait()
				lines := strings.Split(strings.TrimSpace(text.String()), "\n")
				require.Len(t, lines, len(c.logs))
				for i, want := range c.logs {
					require.Contains(t, lines[i], want)
				}
				if strings.HasPrefix(name, "panic") {
					require.Contains(t, lines[0], "job_test.go", "the stack of the panic")
				}

				require.Equal(t, recruit.Failed, r.Enlist(t.Context()), "the next call runs the job again")
				require.Equal(t, recruit.JobStats{Name: "x", Rate: 1, Recruited: 2, Failed: 2, Panicked: 2 * c.panicked}, job(t, r))
				require.NoError(t, r.Close(t.Context()))
			})
		})
	}
}

func TestS3_ACallerWhoseContextEndsWaitsBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A job that ends with its context is not left behind.
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

		require.Equal(t, recruit.Dismissed, r.Enlist(ctx), "ctx has ended")
		require.EqualValues(t, 1, job(t, r).Dismissed)

		// A job that ignores its context is left behind long before the budget
		// is used up.
		let := make(chan struct{})
		r = always(t, func(context.Context) error { <-let; return nil })
		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		began = time.Now()
		require.Equal(t, recruit.Overdue, r.Enlist(ctx))
		require.Equal(t, 25*time.Millisecond, time.Since(began))
		let <- struct{}{}
		synctest.Wait()

		// Near the end of the budget, the budget ends the wait.
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

		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("no timeout"))
		defer cancel()
		require.EqualError(t, r.Close(ctx), `close recruiter: runs have not returned: 1 of "x": no timeout`)
		require.Equal(t, recruit.Dismissed, r.Enlist(t.Context()))
		require.ErrorIs(t, r.Install("y", 0.5, recruit.JobFunc(nothing)), recruit.ErrClosed)

		close(let)
		require.NoError(t, r.Close(t.Context()))
		require.NoError(t, r.Close(ctx), "if both are done, success counts")
	})
}

func TestS3_CloseNamesWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		blocks := recruit.JobFunc(func(context.Context) error { <-let; return nil })
		r := newRecruiter(t, recruit.WithSource(&numbers{0, 0, 1 << 63}))
		require.NoError(t, r.Install("slow", 0.5, blocks))
		require.NoError(t, r.Install("stuck", 0.25, blocks))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { r.Enlist(t.Context()) })
			synctest.Wait() // the call has drawn
		}
		wg.Wait()
		require.True(t, r.Uninstall("slow"), "its runs continue")
		require.NoError(t, r.Install("other", 0.125, recruit.JobFunc(nothing)))

		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("no timeout"))
		require.EqualError(t, r.Close(ctx), `close recruiter: runs have not returned: 2 of "slow", 1 of "stuck": no timeout`)
		close(let)
		require.NoError(t, r.Close(t.Context()))
	})
}

// A program can print the results at its end.
func TestS4_JobsAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		r := always(t, func(context.Context) error { <-let; return nil })
		require.Equal(t, recruit.Overdue, r.Enlist(t.Context()))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, r.Close(ended))
		require.Equal(t, recruit.JobStats{Name: "x", Rate: 1, Recruited: 1, Overdue: 1, Behind: 1}, job(t, r), "the job that blocks is visible")
		close(let)
		require.NoError(t, r.Close(t.Context()))
		final := recruit.JobStats{Name: "x", Rate: 1, Recruited: 1, Overdue: 1, Spent: budget}
		require.Equal(t, final, job(t, r))
		require.Equal(t, recruit.Dismissed, r.Enlist(t.Context()), "no call draws it")
		require.Equal(t, final, job(t, r))
		require.True(t, r.Uninstall("x"), "Uninstall works after Close")
		require.Empty(t, r.Jobs())
		require.Equal(t, recruit.Dismissed, r.Enlist(t.Context()))
	})
}

// A broken job does not flood the log.
func TestS4_OneLogLineASecond(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		do   recruit.JobFunc
		line string
	}{
		"error": {func(context.Context) error { return boom }, `level=WARN msg="job failed" job=x took=0s err=boom`},
		"panic": {func(context.Context) error { panic(boom) }, `level=ERROR msg="job panicked" job=x took=0s err="panic: boom"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, text := newLog()
				r := always(t, c.do, recruit.WithLogger(log))
				for range 2500 { // at 1 ms each, 2.5 s
					r.Enlist(t.Context())
					time.Sleep(time.Millisecond)
				}
				require.EqualValues(t, 2500, job(t, r).Failed, "all are counted")
				require.NoError(t, r.Close(t.Context()))
				lines := strings.Split(strings.TrimSpace(text.String()), "\n")
				require.Len(t, lines, 3)
				for i, line := range lines {
					require.Contains(t, line, c.line)
					require.Equal(t, i > 0, strings.Contains(line, " omitted=999"), line)
				}
			})
		})
	}
}

// Log lines for failures do not suppress those for runs left behind, nor the
// reverse.
func TestS4_LateRunsAreLoggedSeparately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := newLog()
		r := always(t, func(context.Context) error { time.Sleep(100 * time.Millisecond); return errors.New("boom") }, recruit.WithLogger(log))
		for range 21 { // a tenth of a second each
			require.Equal(t, recruit.Overdue, r.Enlist(t.Context()))
			time.Sleep(budget)
			synctest.Wait()
		}
		require.NoError(t, r.Close(t.Context()))
		require.Equal(t, `level=WARN msg="job left behind" job=x took=50ms
level=WARN msg="job left behind failed" job=x took=100ms err=boom
level=WARN msg="job left behind" job=x took=50ms omitted=9
level=WARN msg="job left behind failed" job=x took=100ms err=boom omitted=9
level=WARN msg="job left behind" job=x took=50ms omitted=9
level=WARN msg="job left behind failed" job=x took=100ms err=boom omitted=9
`, text.String())
	})
}

// The return of a run is logged only if the log said that the run was left behind.
func TestS4_TheReturnIsLoggedIfTheDelayWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := newLog()
		r := always(t, func(context.Context) error { time.Sleep(2 * budget); return nil }, recruit.WithLogger(log))
		for range 11 {
			require.Equal(t, recruit.Overdue, r.Enlist(t.Context()))
			time.Sleep(budget)
			synctest.Wait()
		}
		require.NoError(t, r.Close(t.Context()))
		require.Equal(t, `level=WARN msg="job left behind" job=x took=50ms
level=INFO msg="job left behind returned" job=x took=100ms
level=WARN msg="job left behind" job=x took=50ms omitted=9
level=INFO msg="job left behind returned" job=x took=100ms
`, text.String())
	})
}

func TestS4_OneLeftBehindThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := newLog()
		r := always(t, func(context.Context) error { time.Sleep(2 * budget); panic("boom") }, recruit.WithLogger(log))
		require.Equal(t, recruit.Overdue, r.Enlist(t.Context()))
		require.NoError(t, r.Close(t.Context()))
		require.Contains(t, text.String(), `level=ERROR msg="job left behind panicked" job=x took=100ms err="panic: boom" stack=`)
		require.Equal(t, 2, strings.Count(text.String(), "level="))
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
		require.Zero(t, running.Load(), "Close returned while a run was active")
		wg.Wait()
		require.Zero(t, running.Load())
	})
}
