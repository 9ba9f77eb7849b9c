package rebalance

import (
	_ "slices" // pure
	_ "time"   // want depguard

	_ "github.com/cespare/xxhash/v2"     // want depguard
	_ "github.com/f8949c05/orchestrator" // want depguard
)
