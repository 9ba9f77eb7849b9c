package scenario

import (
	_ "github.com/f8949c05/orchestrator/communicator/memory" // its cluster

	_ "github.com/f8949c05/orchestrator/worker" // want depguard
	_ "github.com/stretchr/testify/require"     // want depguard
)
