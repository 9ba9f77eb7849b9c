package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

func TestHeldText(t *testing.T) {
	until := time.Date(2026, 11, 27, 23, 30, 0, 0, time.FixedZone("", 3600))
	for want, c := range map[string]struct {
		moves int
		holds []orchestrator.Hold
	}{
		"":                                {},
		"7 moves for an even spread wait": {moves: 7},
		"Moves for an even spread wait: a\\u000a": {holds: []orchestrator.Hold{{Why: "a\n"}}},
		"1 move for an even spread waits: a, until 2026-11-27 22:30:00 UTC at the latest; b": {
			1, []orchestrator.Hold{{Why: "a", Until: until}, {Why: "b"}},
		},
		"2 moves for an even spread wait: a; b; c; and 2 more": {2, []orchestrator.Hold{{Why: "a"}, {Why: "b"}, {Why: "c"}, {Why: "d"}, {Why: "e"}}},
	} {
		require.Equal(t, want, api.HeldText(c.moves, c.holds))
	}
}
