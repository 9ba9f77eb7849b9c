package grpc

import (
	_ "github.com/f8949c05/orchestrator/bench"                       // want depguard
	_ "github.com/prometheus/client_golang/prometheus"               // want depguard
	_ "github.com/stretchr/testify/require"                          // want depguard
)
