package boltrecord

import (
	_ "github.com/f8949c05/orchestrator/communicator" // want depguard
	_ "github.com/f8949c05/orchestrator/worker"       // down
)
