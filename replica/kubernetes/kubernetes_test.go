package kubernetes_test

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/backendtest"
	"github.com/f8949c05/orchestrator/replica/kubernetes"
)

var (
	_ replica.Backend   = (*kubernetes.Table)(nil)
	_ replica.Waiter    = (*kubernetes.Table)(nil)
	_ replica.Describer = (*kubernetes.Table)(nil)
	_ io.Closer         = (*kubernetes.Table)(nil)
)

func TestMain(m *testing.M) {
	proctest.SetParallel(3) // they wait for leases
	goleak.VerifyTestMain(m)
}

var tables atomic.Int64

func TestConformance_OnAFake(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Store {
		f := newFake(t)
		name := fmt.Sprint("pollers-", tables.Add(1))
		return backendtest.Store{
			Open: func() replica.Backend { return open(t, kubernetes.Config{URL: f.URL, Namespace: "test"}, name) },
			Recreate: func() {
				require.NotZero(t, f.drop(func(string) bool { return true }))
			},
			Drop: func(id uint64) {
				require.NotZero(t, f.drop(func(n string) bool { return strings.HasSuffix(n, fmt.Sprintf("%016x-orders", id)) }))
			},
		}
	})
}

// open returns a table that is closed with the test.
func open(t testing.TB, c kubernetes.Config, name string) *kubernetes.Table {
	table := kubernetes.New(c, name, kubernetes.WithLogger(slog.New(slog.DiscardHandler)))
	t.Cleanup(func() { require.NoError(t, table.Close()) })
	return table
}
