package lease

import (
	_ "golang.org/x/sys/unix" // for its clock

	_ "github.com/f8949c05/orchestrator/rebalance/flow" // want depguard
	_ "go.uber.org/goleak"                              // want depguard
)
