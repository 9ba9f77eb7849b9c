package model

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var (
	all      = flag.Bool("model.all", false, "search all configurations of CI: a minute")
	larger   = flag.Bool("model.large", false, "search the large configurations, too")
	printAll = flag.Bool("model.print", false, "print each counterexample")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// searched reports whether the flags ask for a configuration.
func searched(c *config) bool {
	return c.effort == always || c.effort == inCI && (*all || *larger) || c.effort == large && *larger
}

func check(t *testing.T, list []config) {
	t.Helper()
	for _, c := range list {
		if !searched(&c) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			c := c.bounded()
			r := search(c, 2)
			t.Logf("%d states, %d steps", r.states, r.steps)
			if *printAll && r.finding != none {
				for _, line := range c.transcript(r) {
					t.Log(line)
				}
			}
			require.True(t, r.complete)
			require.Equal(t, c.finding, r.finding)
			if c.finding != none {
				require.Equal(t, c.steps, r.steps)
			} else if c.states != 0 {
				require.Equal(t, c.states, r.states)
			}
		})
	}
}

func TestModel_Holds(t *testing.T) { check(t, holding) }

func TestModel_FindsEachRule(t *testing.T) { check(t, defects) }

func TestModel_HoldsWithoutSpareRules(t *testing.T) { check(t, spare) }

// The table of the rules in doc.go is the one of rules.go and of the defects.
func TestDoc_Rules(t *testing.T) {
	source, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var table strings.Builder
	for r, text := range rules {
		steps := [...]string{atomic: "–", piecewise: "–"}
		for _, c := range defects {
			switch column := &steps[c.store]; {
			case c.off>>r&1 == 0:
			case c.off != 1<<r:
				*column = fmt.Sprint(c.steps, "+")
			case c.finding == neverRuns:
				*column = fmt.Sprint(c.steps, "*")
			default:
				*column = fmt.Sprint(c.steps)
			}
		}
		fmt.Fprintf(&table, "//\t%-3s %4s %4s  %s\n", text.clause, steps[atomic], steps[piecewise], text.text)
	}
	require.Contains(t, string(source), table.String())
}
