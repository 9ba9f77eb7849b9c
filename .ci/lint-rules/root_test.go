package orchestrator_test

import (
	"context"
	"testing"
	"time"

	_ "github.com/prometheus/client_golang/prometheus" // want depguard
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	_ "github.com/f8949c05/orchestrator/communicator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContext(t *testing.T) {
	ctx := context.Background()              // want usetesting
	time.Sleep(time.Millisecond)             // want sleeps
	require.Equal(t, ctx.Err() == nil, true) // want testifylint
	t.Cleanup(func() { <-context.WithoutCancel(t.Context()).Done() })
}
