package handover_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/handover"
)

// limited returns a machine for changes between workers with some free room each.
func limited(changes []handover.Change, batch bool, free ...int32) *handover.Machine {
	m := handover.New(changes, len(free), order(len(free)), batch)
	room := handover.Room{Free: free}
	for _, c := range changes {
		room.Takes = append(room.Takes, [2]int32{c.To, handover.None})
		room.Gives = append(room.Gives, [2]int32{c.From, handover.None})
	}
	m.Limit(room)
	return m
}

func startFirst(task, from, to int32) handover.Change {
	return handover.Change{Task: task, From: from, To: to, StartFirst: true}
}

// An Add waits for the acknowledged Removes that make its room.
func TestP10_Room(t *testing.T) {
	for _, c := range []struct {
		name    string
		changes []handover.Change
		free    []int32
		fails   map[string]handover.Result
		log     []string
		skipped []int // changes without room
	}{
		{
			name: "a start waits for the stop of another task", free: []int32{0},
			changes: []handover.Change{start(1, 0), stop(2, 0)},
			log:     []string{"stop 2@0", "start 1@0"},
		},
		{
			name: "a stop makes room for one start", free: []int32{0},
			changes: []handover.Change{start(1, 0), start(2, 0), stop(3, 0)},
			log:     []string{"stop 3@0", "start 1@0"}, skipped: []int{1},
		},
		{
			name: "a stop that is refused makes no room", free: []int32{0},
			changes: []handover.Change{start(1, 0), stop(2, 0)},
			fails:   map[string]handover.Result{"stop 2@0": handover.Refused},
			log:     []string{"stop 2@0"}, skipped: []int{0},
		},
		{
			name: "a copy that is still stopping counts", free: []int32{0},
			changes: []handover.Change{start(1, 0), stop(2, 0)},
			fails:   map[string]handover.Result{"stop 2@0": handover.Stopping},
			log:     []string{"stop 2@0"}, skipped: []int{0},
		},
		{
			name: "a start that is refused leaves its room", free: []int32{1},
			changes: []handover.Change{start(1, 0), start(2, 0)},
			fails:   map[string]handover.Result{"start 1@0": handover.Refused},
			log:     []string{"start 1@0", "start 2@0"},
		},
		{
			name: "a start without an answer keeps its room", free: []int32{1},
			changes: []handover.Change{start(1, 0), start(2, 0)},
			fails:   map[string]handover.Result{"start 1@0": handover.Unknown},
			log:     []string{"start 1@0"}, skipped: []int{1},
		},
		{
			name: "moves in a row begin with the last", free: []int32{0, 0, 1},
			changes: []handover.Change{move(1, 0, 1), move(2, 1, 2)},
			log:     []string{"stop 2@1", "start 2@2", "stop 1@0", "start 1@1"},
		},
		{
			name: "moves in a circle", free: []int32{0, 0, 0},
			changes: []handover.Change{move(1, 0, 1), move(2, 1, 2), move(3, 2, 0)},
			log:     []string{"stop 1@0", "stop 3@2", "stop 2@1", "start 3@0", "start 2@2", "start 1@1"},
		},
		{
			name: "a task that starts first changes places with one that stops first", free: []int32{0, 0},
			changes: []handover.Change{startFirst(1, 0, 1), move(2, 1, 0)},
			log:     []string{"stop 2@1", "start 1@1", "stop 1@0", "start 2@0"},
		},
		{
			name: "if it cannot start, the other one is given back", free: []int32{0, 0},
			changes: []handover.Change{startFirst(1, 0, 1), move(2, 1, 0)},
			fails:   map[string]handover.Result{"start 1@1": handover.Refused},
			log:     []string{"stop 2@1", "start 1@1", "start 2@1"},
		},
		{
			name: "moves in a circle, of which one failed before", free: []int32{0, 0},
			changes: []handover.Change{move(1, 0, 1), {Task: 2, From: 1, To: 0, Last: true}},
			log:     []string{"stop 2@1", "stop 1@0", "start 1@1", "start 2@0"},
		},
		{
			name: "if it fails again, no other task was stopped", free: []int32{0, 0},
			changes: []handover.Change{move(1, 0, 1), {Task: 2, From: 1, To: 0, Last: true}},
			fails:   map[string]handover.Result{"stop 2@1": handover.Refused},
			log:     []string{"stop 2@1"}, skipped: []int{0},
		},
		{
			name: "a circle that breaks gives the first task back", free: []int32{0, 0},
			changes: []handover.Change{move(1, 0, 1), move(2, 1, 0)},
			fails:   map[string]handover.Result{"stop 2@1": handover.Refused},
			log:     []string{"stop 1@0", "stop 2@1", "start 1@0"},
		},
		{
			name: "a move without room does not stop its task", free: []int32{0, 0},
			changes: []handover.Change{move(1, 0, 1)},
			skipped: []int{0},
		},
		{
			name: "tasks that start first do not change places", free: []int32{0, 0},
			changes: []handover.Change{startFirst(1, 0, 1), startFirst(2, 1, 0)},
			skipped: []int{0, 1},
		},
		{
			name: "a task that starts first counts at both ends", free: []int32{0, 1},
			changes: []handover.Change{startFirst(1, 0, 1), start(2, 0)},
			log:     []string{"start 1@1", "stop 1@0", "start 2@0"},
		},
		{
			name: "a give-back needs no room", free: []int32{-1, 1},
			changes: []handover.Change{move(1, 0, 1)},
			fails:   map[string]handover.Result{"start 1@1": handover.Refused},
			log:     []string{"stop 1@0", "start 1@1", "start 1@0"},
		},
	} {
		for _, batch := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, ", batches ", batch), func(t *testing.T) {
				m := limited(c.changes, batch, slices.Clone(c.free)...)
				log := drive(m, c.changes, func(call handover.Call, w handover.Write) handover.Result {
					verb := "stop"
					if w.Start {
						verb = "start"
					}
					if a, ok := c.fails[fmt.Sprintf("%s %d@%d", verb, c.changes[w.Change].Task, call.Worker)]; ok {
						return a
					}
					return handover.Done
				})
				require.ElementsMatch(t, c.log, log)
				if !batch {
					require.Equal(t, c.log, log)
				}
				require.True(t, m.Over())
				var skipped []int
				for i := range c.changes {
					if out, why := m.Outcome(i); out == handover.OutSkipped {
						require.Equal(t, handover.NoRoom, why)
						skipped = append(skipped, i)
					}
				}
				require.Equal(t, c.skipped, skipped)
			})
		}
	}
}

// A change that waits for room in two places does not keep that of one of them.
func TestP10_TwoPlaces(t *testing.T) {
	changes := []handover.Change{start(1, 0), start(2, 0), stop(3, 0)}
	m := handover.New(changes, 1, order(1), false)
	none := [2]int32{handover.None, handover.None}
	m.Limit(handover.Room{
		Free:  []int32{0, 0}, // the worker, and a zone that is full
		Takes: [][2]int32{{0, 1}, {0, handover.None}, none},
		Gives: [][2]int32{none, none, {0, handover.None}},
	})
	require.Equal(t, []string{"stop 3@0", "start 2@0"}, drive(m, changes, allDone))
}

// When the window closes, changes that wait for room are dropped for it.
func TestP10_WindowCloses(t *testing.T) {
	changes := []handover.Change{start(1, 0), stop(2, 0)}
	m := limited(changes, false, 0)
	call, ok := m.Next()
	require.True(t, ok)
	m.CloseBegin()
	out, why := m.Outcome(0)
	require.Equal(t, handover.OutSkipped, out)
	require.Equal(t, handover.WindowClosed, why)
	m.Done(call, []handover.Result{handover.Done}, false, false)
	require.True(t, m.Over())
}
