package manager

// The JSON form of a manager's values.

import (
	"encoding/json"
	"testing"
	"time"

	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/stretchr/testify/require"
)

func TestMemberState_InJSON(t *testing.T) {
	m := MemberState{
		Worker:  communicator.Worker{Name: "w", Incarnation: 7},
		Address: "host:1", Lease: 10 * time.Second, Draining: true, Heard: time.Unix(0, 0).UTC(),
	}
	text, err := json.Marshal(m)
	require.NoError(t, err)
	require.JSONEq(t, `{"name": "w", "incarnation": 7, "address": "host:1", "lease": "10s", "draining": true, "heard": "1970-01-01T00:00:00Z"}`, string(text))
}
