package recruit_test

// Helpers of the tests of the contract. Tests that enlist run in a synctest bubble,
// so that a busy machine does not delay a job.

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/recruit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// always returns a recruiter with one job, x, which every call draws.
func always(t testing.TB, do recruit.JobFunc, opts ...recruit.Option) *recruit.Recruiter {
	t.Helper()
	r, err := recruit.New(opts...)
	require.NoError(t, err)
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
