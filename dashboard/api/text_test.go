package api_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/dashboard/api"
)

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
