package term

import (
	_ "context" // want depguard
	_ "slices"  // pure
	_ "sync"    // want depguard
	"time"

	_ "github.com/f8949c05/orchestrator"                // want depguard
	_ "github.com/f8949c05/orchestrator/rebalance/flow" // down
)

var (
	_ = time.Now // want forbidigo
	_ = time.Second
)
