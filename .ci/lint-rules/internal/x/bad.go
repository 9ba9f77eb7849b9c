package x

import (
	_ "github.com/f8949c05/orchestrator/worker" // want depguard
)
