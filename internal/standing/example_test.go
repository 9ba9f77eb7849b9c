package standing_test

import (
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator/internal/standing"
)

// Worker 7 runs nothing and refuses two tasks: it is closed for a term, and then
// on probation.
func Example() {
	book := standing.New()
	refused := errors.New("refused")
	book.Learn(1, []standing.Start{
		{Pair: standing.Pair{Task: 1, Worker: 7}, Err: refused},
		{Pair: standing.Pair{Task: 2, Worker: 7}, Err: refused},
		{Pair: standing.Pair{Task: 3, Worker: 8}},
	}, func(worker uint64) bool { return worker == 8 }, func(task int32) bool { return task == 3 })

	for term := range uint64(3) {
		closed, probation := book.Closed(7, term+1)
		fmt.Println("term", term+1, "closed:", closed, "on probation:", probation)
	}
	book.Succeeded(standing.Pair{Task: 3, Worker: 7})
	fmt.Println("nothing held against anyone:", book.Empty())
	// Output:
	// term 1 closed: true on probation: false
	// term 2 closed: true on probation: false
	// term 3 closed: true on probation: true
	// nothing held against anyone: true
}
