package stats

import (
	_ "github.com/f8949c05/orchestrator/etcd" // want depguard
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/prometheus/client_golang/prometheus/testutil"
	_ "github.com/stretchr/testify/require" // want depguard
)
