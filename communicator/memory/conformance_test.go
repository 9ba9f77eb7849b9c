package memory_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/communicatortest"
	"github.com/f8949c05/orchestrator/communicator/memory"
	"github.com/stretchr/testify/require"
)

// underTest returns a new cluster for the conformance kit. cut is the switch that
// cuts a worker off.
func underTest(plain bool, cut func(*cluster, ...string)) func(*testing.T) communicatortest.Cluster[string, string] {
	return func(t *testing.T) communicatortest.Cluster[string, string] {
		lingers := make(chan struct{}, 1) // holds a value while tasks are slow to stop
		c := start(t, func(ctx context.Context, _, _ string) error {
			<-ctx.Done()
			lingers <- struct{}{}
			<-lingers
			return nil
		})
		under := communicatortest.Cluster[string, string]{
			Communicator: c,
			Workers:      []string{"w1", "w2"},
			Tasks:        []string{"a", "b", "c"},
			Strangers:    []string{"w3"},
			Hold:         c.HoldWrites,
			Linger: func(string, string) func() {
				lingers <- struct{}{}
				return func() { <-lingers }
			},
			Cut: func(name string) func() {
				cut(c, name)
				return func() { c.Heal(name) }
			},
			Refuse: func(name, task string) func() {
				c.Refuse(func(op orchestrator.Op, n, tk string) error {
					if op == orchestrator.OpAdd && n == name && tk == task {
						return fmt.Errorf("%w: no %s here", orchestrator.ErrRejected, task)
					}
					return nil
				})
				return func() { c.Refuse(nil) }
			},
		}
		if plain {
			under.Communicator = c.Plain()
		}
		return under
	}
}

func TestConformance(t *testing.T) {
	for name, factory := range map[string]func(*testing.T) communicatortest.Cluster[string, string]{
		"Cut":   underTest(false, (*cluster).Cut),
		"Hang":  underTest(false, (*cluster).Hang),
		"Plain": underTest(true, (*cluster).Cut),
	} {
		t.Run(name, func(t *testing.T) {
			for name, check := range communicatortest.Checks(factory) {
				t.Run(name, func(t *testing.T) { synctest.Test(t, check) })
			}
		})
	}
}

// A task costs microseconds even in a large cluster, and in a bubble.
func TestCluster_Large(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, tasks = 2_000, 20_000
		c, err := memory.New[int, int](nil)
		require.NoError(t, err)
		all := make([][]orchestrator.Write[int], workers)
		for task := range tasks {
			name := task % workers
			all[name] = append(all[name], orchestrator.Write[int]{Op: orchestrator.OpAdd, Task: task})
		}
		for name := range workers {
			c.Start(name)
			require.Nil(t, c.Apply(t.Context(), name, all[name]))
		}
		for name := range workers {
			require.Len(t, c.RunsOn(name), tasks/workers)
		}
		require.NoError(t, c.Close(context.WithoutCancel(t.Context())))
		require.Len(t, c.Events(), 2*tasks+2*workers)
	})
}
