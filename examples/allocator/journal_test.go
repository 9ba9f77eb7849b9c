package main

// Texts from clients in the log.

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJournal_NothingPassesForAnotherLine(t *testing.T) {
	var log strings.Builder
	j := newJournal(&log, "host\n1")
	for id, shown := range map[string]string{
		"rtz3hc":                    "rtz3hc",
		"a/ü":                       "a/ü",
		"x\n09:00:00.000 a b leads": `"x\n09:00:00.000 a b leads"`,
		"\x00\x1b[2J":               `"\x00\x1b[2J"`,
		"x to b, missing: done":     `"x to b, missing: done"`,
		`"x"`:                       `"\"x\""`,
		"\u2028\u202e":              `"\u2028\u202e"`,
		"\xff":                      `"\xff"`,
		"":                          `""`,
	} {
		log.Reset()
		j.say("started %s: %s", word(id), brief([]byte(id)))
		_, text, _ := strings.Cut(log.String(), " ")
		require.True(t, strings.HasPrefix(text, `"host\n1" started `+shown+`: "`), text)
		require.Equal(t, 1, strings.Count(log.String(), "\n"))
	}
}
