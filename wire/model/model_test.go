package model

import (
	"flag"
	"fmt"
	"os"
	"strconv"
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

// limit is the number of states after which a search ends without a result.
const limit = 100_000_000

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
			r := search(c, 2, limit)
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
	for r := range ruleCount {
		steps := [2]string{"–", "–"}
		for _, c := range defects {
			if c.off != 1<<r && !(c.off&(1<<r) != 0 && (r == compareEvicted || r == rememberEvicted)) {
				continue
			}
			steps[c.store] = strconv.Itoa(c.steps)
			if c.finding == neverRuns {
				steps[c.store] += "*"
			}
		}
		fmt.Fprintf(&table, "//\t%-3s  %3s  %3s  %s\n", rules[r].clause, steps[atomic], steps[piecewise], rules[r].text)
	}
	require.Contains(t, string(source), table.String())
}
