package worker

import (
	_ "math/rand" // want depguard
	_ "time"

	_ "github.com/f8949c05/orchestrator/communicator"     // want depguard
	_ "github.com/f8949c05/orchestrator/internal/closing" // want depguard
	_ "github.com/f8949c05/orchestrator/recruit"          // want depguard
	_ "go.uber.org/goleak"                                // want depguard
)
