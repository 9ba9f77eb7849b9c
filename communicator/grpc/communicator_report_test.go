package grpc

// Reports: what is kept from one to the next.

import (
	"sync/atomic"
	"testing"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/stretchr/testify/require"
)

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
