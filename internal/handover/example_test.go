package handover_test

import (
	"fmt"

	"github.com/f8949c05/orchestrator/internal/handover"
)

// Task 5 moves from worker 0 to worker 1, which refuses it: it is given back.
func Example() {
	m := handover.New([]handover.Change{{Task: 5, From: 0, To: 1}}, 2, []int32{0, 1}, false)
	for {
		call, ok := m.Next()
		if !ok {
			break
		}
		answer := handover.Done
		if call.Worker == 1 {
			answer = handover.Refused
		}
		fmt.Printf("worker %d: start %v: %d\n", call.Worker, call.Writes[0].Start, answer)
		m.Done(call, []handover.Result{answer}, false, false)
	}
	outcome, _ := m.Outcome(0)
	fmt.Println("returned:", outcome == handover.OutReturned)
	// Output:
	// worker 0: start false: 1
	// worker 1: start true: 2
	// worker 0: start true: 1
	// returned: true
}
