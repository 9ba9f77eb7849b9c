package rebalance

import (
	_ "slices" // pure
	_ "time"   // want depguard

	_ "github.com/f8949c05/orchestrator" // want depguard
	_ "golang.org/x/sync/errgroup"       // want depguard
)
