package model

import "fmt"

// A leader has sent an order that has not taken effect. Without the rule that it counts
// all the same (O3), the leader orders the task a second time.
func Example() {
	c := lossA.without(always, runsTwice, 13, sentCounts).bounded()
	for _, line := range c.transcript(search(c, 1)) {
		fmt.Println(line)
	}
	// Output:
	//  1. member A joins and sends its first Sync
	//  2. member B joins and sends its first Sync
	//  3. member A gets the answer of its Sync
	//  4. member B gets the answer of its Sync
	//  5. leader 1 claims the table
	//  6. leader 1 sends order 1.1 {x} for member A
	//  7. leader 1 sends order 1.2 {x} for member B
	//  8. order 1.1 {x} for member A takes effect
	//  9. member A reads its order 1.1 {x}, and accepts 1.1 {x}
	// 10. member A starts x
	// 11. order 1.2 {x} for member B takes effect
	// 12. member B reads its order 1.2 {x}, and accepts 1.2 {x}
	// 13. member B starts x
	//     a task runs twice
}
