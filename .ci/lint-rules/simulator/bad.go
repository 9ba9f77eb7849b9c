package simulator

import (
	_ "github.com/f8949c05/orchestrator/communicator/communicatortest" // down
	_ "github.com/f8949c05/orchestrator/communicator/grpc"             // want depguard
	_ "github.com/f8949c05/orchestrator/stats"                         // want depguard
)
