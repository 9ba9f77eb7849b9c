package grpc

import (
	_ "github.com/f8949c05/orchestrator/bench" // want depguard
	_ "golang.org/x/sync/errgroup"
)
