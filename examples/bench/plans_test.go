//go:build peers

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJudge(t *testing.T) {
	now := fleet{want: []int32{1, 2, 1}, held: [][]int32{{0, 1}, {1, 2}, {}}}
	for _, c := range []struct {
		name   string
		placed [][]int32
		want   outcome
		err    string
	}{
		{"as it is", [][]int32{{0, 1}, {1, 2}, {}}, outcome{2, 0}, ""},
		{"one moved", [][]int32{{0}, {1, 2}, {1}}, outcome{1, 1}, ""},
		{"all moved", [][]int32{{2}, {0}, {1}}, outcome{}, "task 1 is on 1 workers, want 2"},
		{"too many", [][]int32{{0, 1}, {1, 2}, {1}}, outcome{}, "task 1 is on 3 workers, want 2"},
		{"twice on one", [][]int32{{0, 1, 1}, {2}, {}}, outcome{}, "worker 0 should run task 1 twice"},
		{"no such task", [][]int32{{0, 3}, {1, 2}, {1}}, outcome{}, "worker 0 should run task 3, which does not exist"},
		{"no such worker", [][]int32{{0, 1}, {1, 2}}, outcome{}, "the plan has 2 workers, want 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := judge(now, c.placed)
			if c.err != "" {
				require.EqualError(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, o)
		})
	}
}

// A plan cannot have more copies of a task than there are workers.
func TestJudge_MoreCopiesThanWorkers(t *testing.T) {
	o, err := judge(fleet{want: []int32{3}, held: [][]int32{{0}, {}}}, [][]int32{{0}, {0}})
	require.NoError(t, err)
	require.Equal(t, outcome{0, 1}, o)
}

func TestFleet_IsWholeAndEven(t *testing.T) {
	for _, s := range []size{{1_000, 10, 1}, {1_000, 10, 3}, {1_000, 100, 10}} {
		f := s.even()
		o, err := judge(f, f.held)
		require.NoError(t, err, s)
		require.LessOrEqual(t, o.spread, 1, s)
		require.Equal(t, s.instances/s.copies*s.copies, f.pairs(), s)
	}
}

// Events do not modify the original fleet.
func TestEvents(t *testing.T) {
	s := size{1_000, 20, 2}
	before := s.even()
	for _, c := range []struct {
		event          event
		workers, pairs int
	}{
		{cold, 20, 0},
		{steady, 20, 1000},
		{oneJoins, 21, 1000},
		{oneLost, 19, 950},
		{tenthLost, 18, 900},
		{tenthJoins, 22, 1000},
		{allOnOne, 20, 500},
	} {
		now := c.event.to(before)
		require.Equal(t, c.workers, now.workers(), c.event.name)
		require.Equal(t, c.pairs, now.pairs(), c.event.name)
		require.Equal(t, s.even(), before, c.event.name)
	}
}

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
