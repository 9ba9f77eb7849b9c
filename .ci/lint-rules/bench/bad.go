package bench

import (
	_ "github.com/f8949c05/orchestrator/examples/shared" // want depguard
)
