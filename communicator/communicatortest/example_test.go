package communicatortest_test

// The examples.

import (
	"context"
	"fmt"
	"testing"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/communicatortest"
)

// single is a minimal Communicator for a single worker.
type single map[string]bool

func (s single) List(context.Context, string) (tasks []string, err error) {
	for task := range s {
		tasks = append(tasks, task)
	}
	return tasks, nil
}

func (s single) Add(_ context.Context, _, task string) error {
	s[task] = true
	return nil
}

func (s single) Remove(_ context.Context, _, task string) error {
	delete(s, task)
	return nil
}

// A write whose answer is lost looks like a failed write but was done. The faults
// are scripted.
func Example() {
	faulty := communicatortest.NewFaulty(single{}, func(c communicatortest.Call[string, string]) communicatortest.Fault {
		if c.Op == orchestrator.OpAdd && c.Task == "a" {
			return communicatortest.Fault{Kind: communicatortest.FalseFailure}
		}
		return communicatortest.Fault{}
	})
	defer faulty.Close()
	comm := faulty.Communicator() // for orchestrator.New

	ctx := context.Background()
	fmt.Println(comm.Add(ctx, "w", "a"))
	fmt.Println(comm.List(ctx, "w"))
	// Output:
	// injected fault: FalseFailure
	// [a] <nil>
}

// The faults of a seed are the same in every run.
func ExampleSeeded() {
	decide, err := communicatortest.Seeded[string, string](communicatortest.Schedule{
		Seed:      4,
		Add:       communicatortest.Rates{Refusal: 0.1, LateRequest: 0.2},
		Partition: 0.3,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for number := uint64(1); number <= 7; number++ {
		fault := decide(communicatortest.Call[string, string]{
			Term:   orchestrator.Term{Epoch: 1, Number: number},
			Op:     orchestrator.OpAdd,
			Worker: "w1",
			Task:   "a",
		})
		fmt.Println(number, fault.Kind)
	}
	// Output:
	// 1 NoFault
	// 2 LostRequest
	// 3 LostRequest
	// 4 LostRequest
	// 5 NoFault
	// 6 NoFault
	// 7 LateRequest
}

// Run is called from an ordinary test, with a function that makes a new cluster.
// Switches that the cluster does not have are left out.
func ExampleRun() {
	_ = func(t *testing.T) { // func TestConformance(t *testing.T)
		communicatortest.Run(t, func(*testing.T) communicatortest.Cluster[string, string] {
			return communicatortest.Cluster[string, string]{
				Communicator: single{},
				Workers:      []string{"w1", "w2"},
				Tasks:        []string{"a", "b", "c"},
			}
		})
	}
}
