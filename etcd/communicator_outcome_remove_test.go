package etcd

import (
	"testing"

	"github.com/f8949c05/orchestrator"
	"github.com/stretchr/testify/require"
)

// A Remove goes by the claim that its transaction found, and not by a state that
// may be older.
func TestE5_RemoveWaitsForTheClaimThatItFound(t *testing.T) {
	for name, c := range map[string]struct {
		found, seen int64
		spot        spot
		done        bool
	}{
		"nothing was claimed":                {found: 0, seen: 3, done: true},
		"the claim is not shown yet":         {found: 7, seen: 3, done: false},
		"nor is the assignment's end":        {found: 7, seen: 5, spot: spot{assigned: 5}, done: false},
		"it is there":                        {found: 7, seen: 8, spot: spot{claim: 7}, done: false},
		"it is gone":                         {found: 7, seen: 9, done: true},
		"it is gone, and claimed once more":  {found: 7, seen: 12, spot: spot{assigned: 10, claim: 12}, done: true},
		"it is gone, and assigned once more": {found: 7, seen: 12, spot: spot{assigned: 12}, done: true},
	} {
		t.Run(name, func(t *testing.T) {
			done, err := after(orchestrator.OpRemove, c.found, c.seen, c.spot)
			require.NoError(t, err)
			require.Equal(t, c.done, done)
		})
	}
}
