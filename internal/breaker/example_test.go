package breaker_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/f8949c05/orchestrator/internal/breaker"
)

// Worker 1 refuses task 5, and worker 2 starts it.
func Example() {
	b := breaker.New(time.Minute)
	fleet := breaker.Fleet{Workers: 2, Empty: func(worker uint64) bool { return worker == 1 }}
	now := breaker.Moment{Term: 1, Time: time.Now()}
	task5on1 := breaker.Pair{Task: 5, Worker: 1}
	task5on2 := breaker.Pair{Task: 5, Worker: 2}

	b.Learn(now, breaker.Writes{Starts: []breaker.Start{{Pair: task5on1, Err: errors.New("no disk")}}}, fleet)
	now.Term++
	for pair, pause := range b.Pairs() {
		fmt.Printf("task %d pauses on worker %d until term %d: %v\n", pair.Task, pair.Worker, pause.Until, pause.Err)
	}

	b.Learn(now, breaker.Writes{Starts: []breaker.Start{{Pair: task5on2}}}, fleet)
	now.Term++
	pause, quarantined := b.Quarantined(1)
	fmt.Printf("worker 1 quarantined: %v, until term %d\n", quarantined, pause.Until)
	_, quarantined = b.Quarantined(2)
	fmt.Printf("worker 2 quarantined: %v\n", quarantined)
	// Output:
	// task 5 pauses on worker 1 until term 3: no disk
	// worker 1 quarantined: true, until term 4
	// worker 2 quarantined: false
}
