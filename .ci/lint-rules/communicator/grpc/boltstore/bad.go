package boltstore

import (
	_ "github.com/f8949c05/orchestrator/bench" // want depguard
)
