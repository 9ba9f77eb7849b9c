package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

func TestHeldText(t *testing.T) {
	now := time.Date(2026, 11, 27, 23, 0, 0, 0, time.FixedZone("", 3600))
	hold := func(why string, after time.Duration) orchestrator.Hold {
		return orchestrator.Hold{Why: why, Until: now.Add(after).UTC()}
	}
	for want, c := range map[string]struct {
		moves int
		holds []orchestrator.Hold
	}{
		"":                                {},
		"7 moves for an even spread wait": {moves: 7},
		"Moves for an even spread wait: a\\u000a": {holds: []orchestrator.Hold{{Why: "a\n"}}},
		"1 move for an even spread waits: a, until 23:30:00 at the latest; b, until 2026-11-28 00:30:00 at the latest": {
			1, []orchestrator.Hold{hold("a", 30*time.Minute), hold("b", 90*time.Minute)},
		},
		"2 moves for an even spread wait: a; b; c; and 2 more": {2, []orchestrator.Hold{{Why: "a"}, {Why: "b"}, {Why: "c"}, {Why: "d"}, {Why: "e"}}},
	} {
		require.Equal(t, want, api.HeldText(c.moves, c.holds, now))
	}
}
