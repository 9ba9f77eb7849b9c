package etcd

import (
	_ "github.com/f8949c05/orchestrator/bench"             // want depguard
	_ "github.com/f8949c05/orchestrator/communicator/grpc" // want depguard
	_ "github.com/f8949c05/orchestrator/etcd/embed"        // want depguard
	_ "github.com/prometheus/client_golang/prometheus"     // want depguard
)
