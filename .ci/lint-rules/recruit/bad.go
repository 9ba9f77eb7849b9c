package recruit

import (
	_ "github.com/f8949c05/orchestrator/stats"         // want depguard
	_ "github.com/prometheus/client_golang/prometheus" // want depguard
)
