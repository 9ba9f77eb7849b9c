package history_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/history"
)

// Moves for an even spread say what made it uneven: the newest event since the last even plan (D32).
func TestD32_WhatMadeTheSpreadUneven(t *testing.T) {
	inBubble(t, inMemory, []string{"w1", "w2", "w3"}, []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}, func(t *testing.T, f *fleet) {
		f.terms(3)
		// moved returns the cause of the last term with moves for an even spread, and how many terms ago it was found.
		moved := func() string {
			t.Helper()
			v := f.ring.View()
			for term := range v.Terms(orchestrator.Term{}) {
				if c, ok := v.Uneven(term.Stats.Term); ok {
					return fmt.Sprintf("%s %v%s, %d", c.Kind, c.Workers, c.Hold, term.Stats.Term.Number-c.Term.Number)
				}
			}
			return ""
		}
		require.Empty(t, moved())

		f.Start("w4")
		require.NoError(t, f.AddWorker("w4"))
		f.terms(3)
		require.Equal(t, "joined [w4], 0", moved())

		require.NoError(t, f.DrainWorker("w4"))
		f.terms(3)
		require.NoError(t, f.UndrainWorker("w4"))
		f.terms(1)
		require.Equal(t, "open [w4], 0", moved())
		f.terms(2)

		f.Hold(time.Now().Add(time.Hour), "deploy")
		f.Start("w5")
		require.NoError(t, f.AddWorker("w5"))
		f.terms(4)
		require.Equal(t, "open [w4], 0", moved(), "no move has been made since")
		f.Hold(time.Time{}, "deploy")
		f.terms(1)
		require.Equal(t, "hold []deploy, 0", moved())
		f.terms(2)

		for _, task := range f.RunsOn("w1") {
			f.RemoveTask(task)
		}
		f.terms(1)
		require.Equal(t, "tasks [], 0", moved())
		f.terms(2)

		for i, task := range f.ListExpectedTasks() {
			require.NoError(t, f.AddTask(task.Name, orchestrator.WithTaskWeight(int64(1+i*i))))
		}
		f.terms(1)
		require.Equal(t, "rules [], 0", moved())
		f.terms(2)

		weights := make(map[string]int64)
		for i, task := range f.ListExpectedTasks() {
			weights[task.Name] = int64(100 - i*i)
		}
		require.NoError(t, f.UpdateWeights(weights))
		f.terms(1)
		require.Equal(t, "weights [], 0", moved())
		f.terms(2)

		require.NoError(t, f.AddWorker("w2", orchestrator.WithWorkerSettings(orchestrator.WorkerSettings{Share: 9})))
		f.terms(1)
		require.Equal(t, "settings [], 0", moved())
	})
}

// An event counts also if its moves are made in later terms, and an older one than the last even plan does not.
func TestD32_LaterMoves(t *testing.T) {
	move := map[orchestrator.ChangeKind]int{{Op: orchestrator.Move, Reason: orchestrator.ReasonRebalance}: 1}
	joined := func(name string) []history.WorkerEvent {
		return []history.WorkerEvent{{Worker: name, After: &history.Condition{}}}
	}
	r, err := history.New()
	require.NoError(t, err)
	for i, term := range []*history.Term{
		{Events: joined("w1"), Stats: orchestrator.TermStats{Changes: move}},
		{},
		{Events: joined("w2"), Stats: orchestrator.TermStats{Changes: move, Deferred: 3}},
		{Stats: orchestrator.TermStats{Changes: move, Deferred: 2}},
		{Events: joined("w3"), Stats: orchestrator.TermStats{Changes: move, Deferred: 2}},
		{Stats: orchestrator.TermStats{Changes: move, Deferred: 1}},
		{Stats: orchestrator.TermStats{Changes: move}, Quiet: history.Quiet{Terms: 2}},
		{Stats: orchestrator.TermStats{Changes: move}},
		{Stats: orchestrator.TermStats{Changes: move}},
	} {
		term.Stats.Term = orchestrator.Term{Epoch: 1, Number: uint64(i + 1)}
		r.Put(term)
	}
	var found []string
	for i := range 10 {
		c, ok := r.View().Uneven(orchestrator.Term{Epoch: 1, Number: uint64(i + 1)})
		found = append(found, fmt.Sprintf("%t %d %v", ok, c.Term.Number, c.Workers))
	}
	require.Equal(t, []string{
		"true 1 [w1]", "false 0 []", "true 3 [w2]", "true 3 [w2]", "true 5 [w3]", "true 5 [w3]", "true 5 [w3]", "true 5 [w3]", "true 5 [w3]", "false 0 []",
	}, found)
}
