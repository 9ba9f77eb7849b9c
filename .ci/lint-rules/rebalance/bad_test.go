package rebalance

import (
	_ "testing"
	_ "time"

	_ "github.com/f8949c05/orchestrator/worker" // want depguard
	_ "go.uber.org/goleak"
)
