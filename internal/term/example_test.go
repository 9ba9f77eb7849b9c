package term_test

import (
	"fmt"
	"time"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/internal/term"
)

// Task 0 runs on worker 1, and task 1 is new. Worker 2 refuses it, so it pauses there. When it has started on worker 1,
// its failure counts against worker 2.
func Example() {
	f := term.New(term.Config{Timeout: time.Second, MaxPause: time.Minute, MaxLoss: 0.5, MaxMoves: -1})
	tasks := term.Tasks{Loaded: true, Instances: []int32{1, 1}, StartFirst: []bool{false, false}, Wanted: 2}
	start := time.Now()
	f.Join([]term.Member{{Serial: 1}, {Serial: 2}}, start, func(int) term.Set { return nil })
	for number := uint64(1); number <= 2; number++ {
		now := term.Moment{Term: number, Time: start.Add(time.Duration(number) * time.Minute)}
		f.Begin(now)
		f.Answer(f.Workers[0], term.Answer{Tasks: []int32{0}, Changed: true, At: now.Time}, now)
		f.Answer(f.Workers[1], term.Answer{Changed: true, At: now.Time}, now)
		f.ClearFailures(now)
		f.Judge(now.Time, 3*time.Second)
		d := f.Decide(&tasks, now)
		w := f.Write(d.Changes, false)
		for call, ok := w.Machine.Next(); ok; call, ok = w.Machine.Next() {
			c := d.Changes[call.Writes[0].Change]
			fmt.Printf("term %d: start task %d on worker %d\n", number, c.Task, f.Workers[call.Worker].Serial)
			r := term.Result{Answer: handover.Done}
			if call.Worker == 1 {
				r = term.Result{Answer: handover.Refused, Err: fmt.Errorf("no disk")}
			}
			w.Ended(call.Worker, call.Writes[0], &r, now)
			w.Machine.Done(call, []handover.Result{r.Answer}, false, false)
		}
		w.Learn(false, now)
		for _, p := range f.Paused(now) {
			if p.Kind == term.PauseWorker {
				fmt.Printf("worker %d is quarantined until term %d: %v\n", f.Workers[p.Worker].Serial, p.Until, p.Err)
				continue
			}
			fmt.Printf("task %d pauses on worker %d until term %d: %v\n", p.Task, f.Workers[p.Worker].Serial, p.Until, p.Err)
		}
	}
	// Output:
	// term 1: start task 1 on worker 2
	// task 1 pauses on worker 2 until term 3: no disk
	// term 2: start task 1 on worker 1
	// worker 2 is quarantined until term 4: no disk
}
