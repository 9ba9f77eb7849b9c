package recruit_test

// The outcome of a call, for the caller and in the counts and logs, and what these
// tests share. Tests that enlist run in a synctest bubble, so that a busy machine
// does not delay a job.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/recruit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newRecruiter(t testing.TB, opts ...recruit.Option) *recruit.Recruiter {
	t.Helper()
	r, err := recruit.New(opts...)
	require.NoError(t, err)
	return r
}

// always returns a recruiter with one job, x, which every call draws.
func always(t testing.TB, do recruit.JobFunc, opts ...recruit.Option) *recruit.Recruiter {
	t.Helper()
	r := newRecruiter(t, opts...)
	require.NoError(t, r.Install("x", 1, do))
	return r
}

func nothing(context.Context) error { return nil }

// job returns the counts of the only job.
func job(t testing.TB, r *recruit.Recruiter) recruit.JobStats {
	t.Helper()
	jobs := r.Jobs()
	require.Len(t, jobs, 1)
	return jobs[0]
}

const budget = 50 * time.Millisecond // the default

func TestS2_AtMostOneJobIsRecruited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs [3]int
		r := newRecruiter(t, recruit.WithSeed(1))
		for i, rate := range []float64{0.5, 0.25, 0.125} {
			require.NoError(t, r.Install(fmt.Sprint(i), rate, recruit.JobFunc(func(context.Context) error {
				runs[i]++
				return nil
			})))
		}
		done := 0
		for call := range 10_000 {
			before := runs[0] + runs[1] + runs[2]
			switch outcome := r.Enlist(t.Context()); outcome {
			case recruit.Done:
				done++
				require.Equal(t, before+1, runs[0]+runs[1]+runs[2], "call %d", call)
			default:
				require.Equal(t, recruit.Dismissed, outcome)
				require.Equal(t, before, runs[0]+runs[1]+runs[2], "call %d", call)
			}
		}
		require.InDelta(t, 8750, done, 5*33)
		require.EqualValues(t, 10_000-done, r.Dismissed())
		for i, j := range r.Jobs() {
			require.EqualValues(t, runs[i], j.Recruited)
			require.InDelta(t, 10_000*j.Rate, runs[i], 5*50)
		}
	})
}

func TestS2_InstallAndUninstallWhileOthersEnlist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran atomic.Uint64
		do := recruit.JobFunc(func(context.Context) error { ran.Add(1); return nil })
		r := newRecruiter(t, recruit.WithLimit(0))
		require.NoError(t, r.Install("stays", 0.5, do))

		var wg sync.WaitGroup
		const callers, calls = 10, 500
		for range callers {
			wg.Go(func() {
				for range calls {
					r.Enlist(t.Context())
				}
			})
		}
		for i := range 2 {
			wg.Go(func() {
				name := fmt.Sprint("comes and goes ", i)
				for range 200 {
					if err := r.Install(name, 0.25, do); err != nil {
						t.Error(err)
					}
					if len(r.Jobs()) < 2 || !r.Uninstall(name) {
						t.Error(name, "is not installed")
					}
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, callers*calls, r.Dismissed()+ran.Load(), "every call is either dismissed or a run")
		require.Len(t, r.Jobs(), 1)
	})
}

func TestS2_TheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		let := make(chan struct{})
		r := always(t, func(context.Context) error { <-let; return nil }, recruit.WithLimit(3))

		outcomes := make(chan recruit.Outcome, 4)
		for range 3 {
			go func() { outcomes <- r.Enlist(ctx) }()
		}
		synctest.Wait()
		require.Equal(t, recruit.Dismissed, r.Enlist(ctx))
		require.Equal(t, 3, job(t, r).Running)
		let <- struct{}{}
		synctest.Wait()
		go func() { outcomes <- r.Enlist(ctx) }()
		synctest.Wait()
		close(let)
		for range 4 {
			require.Equal(t, recruit.Done, <-outcomes)
		}
		s := job(t, r)
		require.EqualValues(t, 4, s.Recruited)
		require.EqualValues(t, 1, s.Dismissed)
		require.EqualValues(t, 1, r.Dismissed())
	})
}

func TestS4_LogLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := newLog()
		wait := make(chan struct{})
		fail := error(nil)
		r := always(t, func(context.Context) error { <-wait; return fail }, recruit.WithLogger(log))
		go func() { wait <- struct{}{} }()
		r.Enlist(t.Context())
		r.Enlist(t.Context()) // is left behind
		r.Enlist(t.Context()) // is dismissed
		wait <- struct{}{}
		synctest.Wait()
		time.Sleep(time.Second)
		r.Enlist(t.Context())
		fail = errors.New("boom")
		close(wait)
		require.NoError(t, r.Close(t.Context()))
		r.Enlist(t.Context()) // draws nothing: no line
		require.Equal(t, `level=DEBUG msg="job done" job=x took=0s
level=WARN msg="job left behind" job=x took=50ms
level=DEBUG msg="caller dismissed" job=x reason="run left behind"
level=INFO msg="job left behind returned" job=x took=50ms
level=WARN msg="job left behind" job=x took=50ms
level=WARN msg="job left behind failed" job=x took=50ms err=boom
`, text.String())
	})
}

func TestS4_Outcomes(t *testing.T) {
	require.Equal(t, "dismissed done failed overdue Outcome(4)",
		fmt.Sprint(recruit.Dismissed, " ", recruit.Done, " ", recruit.Failed, " ", recruit.Overdue, " ", recruit.Outcome(4)))
	text, err := recruit.Overdue.MarshalText()
	require.NoError(t, err)
	require.Equal(t, "overdue", string(text))
}

func TestS5_TheSameSeedTheSameDraws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outcomes := func(opt recruit.Option) (drawn string) {
			r := newRecruiter(t, opt)
			for _, name := range []string{"a", "b", "c"} {
				require.NoError(t, r.Install(name, 0.25, recruit.JobFunc(func(context.Context) error { drawn += name; return nil })))
			}
			for range 100 {
				if r.Enlist(t.Context()) == recruit.Dismissed {
					drawn += "."
				}
			}
			return drawn
		}
		first := outcomes(recruit.WithSeed(7))
		require.Len(t, first, 100)
		require.Equal(t, first, outcomes(recruit.WithSeed(7)))
		require.NotEqual(t, first, outcomes(recruit.WithSeed(8)))
	})
}

// An option is not a generator: each recruiter gets its own.
func TestS5_OneSeedForTwoRecruiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := recruit.WithSeed(7)
		var outcomes [2][]recruit.Outcome
		for i := range outcomes {
			r := newRecruiter(t, seed)
			require.NoError(t, r.Install("x", 0.5, recruit.JobFunc(nothing)))
			for range 100 {
				outcomes[i] = append(outcomes[i], r.Enlist(t.Context()))
			}
		}
		require.Equal(t, outcomes[0], outcomes[1])
	})
}

// numbers returns its elements in order. It is not safe for concurrent use.
type numbers []uint64

func (n *numbers) Uint64() uint64 {
	v := (*n)[0]
	*n = (*n)[1:]
	return v
}

func TestS5_WithSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		half := uint64(1) << 63
		r := newRecruiter(t, recruit.WithSource(&numbers{0, half - 1, half, half + 1<<24 - 1, half + 1<<24, 1<<64 - 1}))
		require.NoError(t, r.Install("lower half", 0.5, recruit.JobFunc(nothing)))
		require.NoError(t, r.Install("one unit", unit, recruit.JobFunc(nothing)))
		for range 6 {
			r.Enlist(t.Context())
		}
		require.EqualValues(t, 2, r.Jobs()[0].Recruited)
		require.EqualValues(t, 2, r.Jobs()[1].Recruited)
		require.EqualValues(t, 2, r.Dismissed())
	})
}

func TestS5_ASourceIsCalledByOneGoroutineAtATime(t *testing.T) {
	source := make(numbers, 1000)
	r := newRecruiter(t, recruit.WithSource(&source))
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range 100 {
				r.Enlist(t.Context()) // draws one number, even without jobs
			}
		})
	}
	wg.Wait()
	require.Empty(t, source)
}

// newLog returns a logger and its output, without times.
func newLog() (*slog.Logger, *bytes.Buffer) {
	var text bytes.Buffer
	return slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})), &text
}
