package api_test

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

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

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"worker-01":                    "worker-01",
		"größe 漢字":                     "größe 漢字",
		"a\nb\x00":                     `a\u000ab\u0000`,
		"\u202egnp.exe":                `\u202egnp.exe`,
		"\xff\xfe":                     `\xff\xfe`,
		"\U000e0001":                   `\U000e0001`,
		"<script>":                     "<script>",
		"\ufffd":                       "\ufffd",
		strings.Repeat("x", 512):       strings.Repeat("x", 512),
		strings.Repeat("x", 513):       strings.Repeat("x", 509) + "…",
		strings.Repeat("\n", 100):      strings.Repeat(`\u000a`, 84) + "…",
		"a" + strings.Repeat("漢", 200): "a" + strings.Repeat("漢", 169) + "…",
	} {
		require.Equal(t, want, api.Printable(in))
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("a\xff\u202e\n漢")
	f.Add(strings.Repeat("\U0001f600", 200))
	f.Fuzz(func(t *testing.T, s string) {
		text := api.Printable(s)
		require.LessOrEqual(t, len(text), api.LongestText)
		require.True(t, utf8.ValidString(text))
		require.Equal(t, text, api.Printable(text))
		for _, r := range text {
			require.True(t, unicode.IsPrint(r), "%q", text)
		}
	})
}
