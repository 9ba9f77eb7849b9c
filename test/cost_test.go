package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator"
)

// What a worker lists first is given up first, so that a transport can list first
// what costs least to move: all that moves to a worker that joins are the first of
// what the others list.
func TestP2_WhatIsListedFirstMovesFirst(t *testing.T) {
	for _, instances := range []int{1, 2} {
		t.Run(fmt.Sprint(instances), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(instances)))
			lists := map[string][]string{"w4": nil}
			var tasks []task
			for i := range 30 {
				tasks = append(tasks, task{Name: fmt.Sprint("t", i), Instances: instances})
				for k := range instances {
					w := fmt.Sprint("w", 1+(i+k)%3)
					lists[w] = append(lists[w], fmt.Sprint("t", i))
				}
			}
			for _, list := range lists {
				r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			}
			o, err := orchestrator.New(communicator.Func[string, string]{
				ListFunc: func(_ context.Context, w string) ([]string, error) { return lists[w], nil },
			}, orchestrator.WithDryRun())
			require.NoError(t, err)
			require.NoError(t, o.UpdateTasks(tasks))
			require.NoError(t, o.UpdateWorkers([]member{{Name: "w1"}, {Name: "w2"}, {Name: "w3"}, {Name: "w4"}}))
			_ = o.NextTerm(t.Context())
			plan := o.LastPlan()
			require.Len(t, plan.Changes, 30*instances/4)
			from := make(map[string]string) // by task
			for _, c := range plan.Changes {
				require.Equal(t, "w4", c.To)
				from[c.Task] = c.From
			}
			for _, w := range []string{"w1", "w2", "w3"} {
				stayed := false
				for _, name := range lists[w] {
					switch from[name] {
					case w:
						require.False(t, stayed, "%s goes from %s, and what is listed before it stays", name, w)
					case "": // what w4 gets from another it cannot get from here
						stayed = true
					}
				}
			}
		})
	}
}
