package orchestrator

import (
	"log" // want depguard

	_ "github.com/prometheus/client_golang/prometheus" // want depguard
	_ "github.com/stretchr/testify/require"            // want depguard

	_ "github.com/f8949c05/orchestrator/internal/closing" // want depguard
	_ "github.com/f8949c05/orchestrator/internal/lease"   // want depguard
	_ "github.com/f8949c05/orchestrator/internal/x"       // down
	_ "github.com/f8949c05/orchestrator/rebalance/flow"   // down
	_ "github.com/f8949c05/orchestrator/worker"           // want depguard
)

// Log writes.
var Log = log.Print
