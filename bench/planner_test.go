package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Every planner's plan is whole for every event in which it takes part, and even if
// promised. Planners that move as little as possible agree on the number of moves.
func TestPlanners_AreWholeAndEven(t *testing.T) {
	s := size{1_000, 10, 1}
	cfg := short()
	cfg.sarama = s
	before := s.even()
	least := map[string]int{
		cold.name: 1000, steady.name: 0, oneJoins.name: 90, oneLost.name: 100,
		tenthLost.name: 100, tenthJoins.name: 90, allOnOne.name: 900,
	}
	for _, e := range events {
		for _, c := range cfg.field() {
			if c.takes(s, e) == 0 {
				continue
			}
			t.Run(e.name+"/"+c.name, func(t *testing.T) {
				now := e.to(before)
				a, err := c.prepare(now, before.workers())
				require.NoError(t, err)
				for range 2 { // a planner may be called again
					require.NoError(t, a.plan())
					placed, err := a.placed()
					require.NoError(t, err)
					o, err := judge(a.found, placed)
					require.NoError(t, err)
					if c.even {
						require.LessOrEqual(t, o.spread, 1)
						require.Equal(t, least[e.name], o.moves)
					} else {
						require.Greater(t, o.spread, 1, "better than promised")
					}
				}
				require.Equal(t, s.even(), before)
			})
		}
	}
}

func TestOurs_SeveralCopies(t *testing.T) {
	for _, copies := range []int{3, 10} {
		before := size{1_000, 10, copies}.even()
		for _, e := range events {
			now := e.to(before)
			a := now.attempt(false)
			require.NoError(t, a.plan())
			placed, err := a.placed()
			require.NoError(t, err)
			o, err := judge(now, placed)
			require.NoError(t, err, e.name)
			require.LessOrEqual(t, o.spread, 1, e.name)
		}
	}
}

// The conversion of tasks to partitions is reversible.
func TestLayout_ThereAndBack(t *testing.T) {
	l, err := newLayout(1_000, manyTopics)
	require.NoError(t, err)
	placed, err := l.tasks(map[string]map[string][]int32{"m": l.owned([]int32{999, 0, 10, 9})}, []string{"m", "n"})
	require.NoError(t, err)
	require.ElementsMatch(t, []int32{0, 9, 10, 999}, placed[0])
	require.Empty(t, placed[1])
	_, err = newLayout(1_001, manyTopics)
	require.EqualError(t, err, "1001 tasks are not evenly spread over 100 topics")
}
