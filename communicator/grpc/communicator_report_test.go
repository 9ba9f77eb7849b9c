package grpc

// Reports: what is kept from one to the next.

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/stretchr/testify/require"
)

// Names take memory once, not again with each changed report.
func TestR1_KnownNamesTakeNoMemory(t *testing.T) {
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprintf("a name of some length %06d", i)
	}
	first := wire.ReportReply{Most: 1 << 20}
	require.NoError(t, first.Decode(marshaled(t, reportOf(1, names...))))
	for what, next := range map[string][]string{
		"the same":               names,
		"the first is gone":      names[1:],
		"some are gone":          slices.Concat(names[:100], names[100+wire.LookAhead-1:5000], names[5001:]),
		"some are new":           slices.Concat([]string{"new"}, names[:5000], []string{"newer", "newest"}, names[5000:]),
		"one has taken a place":  slices.Concat(names[:10], []string{"new"}, names[11:]),
		"all but one are gone":   names[5000:5001],
		"two have changed place": slices.Concat([]string{names[1], names[0]}, names[2:]),
	} {
		t.Run(what, func(t *testing.T) {
			data := marshaled(t, reportOf(2, next...))
			var r wire.ReportReply
			allocations := testing.AllocsPerRun(3, func() {
				r = wire.ReportReply{Known: first.Report, Most: 1 << 20}
				require.NoError(t, r.Decode(data))
			})
			require.Len(t, r.Tasks, len(next))
			for i, name := range next {
				require.Equal(t, name, r.Tasks[i].Name)
			}
			require.Less(t, allocations, 10.0)
		})
	}
}

// Of two concurrent calls the second may be answered first.
func TestR1_TheNewestReportIsKept(t *testing.T) {
	l := link{last: new(atomic.Pointer[snapshot])}
	l.last.Store(&snapshot{})
	newest := &snapshot{Report: wire.Report{Version: wire.Version{Incarnation: 7, Counter: 3}}}
	l.remember(&snapshot{Report: wire.Report{Version: wire.Version{Incarnation: 7, Counter: 1}}})
	l.remember(newest)
	l.remember(&snapshot{Report: wire.Report{Version: wire.Version{Incarnation: 7, Counter: 2}}})
	require.Same(t, newest, l.last.Load())
}
