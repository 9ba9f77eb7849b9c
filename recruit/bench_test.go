package recruit_test

// The cost of a call of Enlist. The cost of a dismissed call matters most, because
// such a call is made on every cache hit.

import (
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/recruit"
)

// rare returns a recruiter with n jobs that are almost never drawn.
func rare(b *testing.B, n int, opts ...recruit.Option) *recruit.Recruiter {
	b.Helper()
	r := newRecruiter(b, opts...)
	for i := range n {
		require.NoError(b, r.Install(strconv.Itoa(i), 1e-9/float64(n), recruit.JobFunc(nothing)))
	}
	return r
}

func BenchmarkEnlist_Dismissed(b *testing.B) {
	for _, c := range []struct {
		name string
		r    *recruit.Recruiter
	}{
		{"jobs=1", rare(b, 1)},
		{"jobs=100", rare(b, 100)},
		{"seeded", rare(b, 1, recruit.WithSeed(1))},
	} {
		b.Run(c.name, func(b *testing.B) {
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				c.r.Enlist(ctx)
			}
		})
	}
}

func BenchmarkEnlist_DismissedParallel(b *testing.B) {
	r := rare(b, 1)
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.Enlist(ctx)
		}
	})
}

// The cost of Enlist with the runtime's generator and one shared counter, for
// comparison with the two benchmarks above in the same run.
func BenchmarkEnlist_Rejected(b *testing.B) {
	var n atomic.Uint64
	draw := func() bool { n.Add(1); return rand.Uint64()>>24 < 1099 }
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			draw()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				draw()
			}
		})
	})
}

func BenchmarkEnlist_Recruited(b *testing.B) {
	r := always(b, nothing)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		r.Enlist(ctx)
	}
}

func BenchmarkEnlist_RecruitedParallel(b *testing.B) {
	r := always(b, nothing)
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.Enlist(ctx)
		}
	})
}
