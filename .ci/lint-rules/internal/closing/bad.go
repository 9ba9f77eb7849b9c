package closing

import (
	_ "github.com/f8949c05/orchestrator/recruit" // want depguard
	_ "go.uber.org/goleak"                       // want depguard
)
