package simulator

// Run: one run, from its seed to its report.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/communicatortest"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

// Run makes one run in its own bubble of testing/synctest, and reports on it. The
// seed and the settings determine everything that happens, on any machine.
//
// The error is a [*Violation] if an invariant was broken, which ends the run. Or it
// wraps orchestrator.ErrInvalid and names every setting that is out of range. Run
// uses t for the bubble and never fails it. It may be called from parallel tests,
// but not inside a bubble.
func Run(t *testing.T, seed uint64, s Settings) (report *Report, err error) {
	t.Helper()
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	// A goroutine that spins in the bubble stops the bubble's time, so timeouts in
	// it never fire.
	slow := time.AfterFunc(time.Minute, func() {
		t.Logf("seed %d has taken a minute of real time; a goroutine may spin, or wait for a mutex held during a call (C1)", seed)
	})
	defer slow.Stop()
	defer func() {
		// synctest panics if goroutines remain that nothing can wake.
		if v := recover(); v != nil {
			err = &Violation{Seed: seed, Invariant: Terminated, Text: fmt.Sprint(v)}
		}
	}()
	synctest.Test(t, func(*testing.T) { report, err = simulate(draw(seed, s)) })
	return report, err
}

func simulate(p setup) (*Report, error) {
	w, err := newWorld(p)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(worldLane, "%v", &w.setup)
	for _, name := range w.names[:w.Workers] {
		w.join(w.workers[name])
	}
	rnd := newRandom(w.seed, "tasks")
	for i := range w.Tasks {
		w.define(w.newTask(fmt.Sprint("t", i+1), &rnd))
	}
	w.lead(w.elect())
	w.unlessSettling(w.eventEvery, func() { w.inject(1) })
	if rnd = newRandom(w.seed, "begin"); rnd.chance(0.5) {
		w.schedule.in(rnd.between(0, time.Duration(w.Terms)*w.eventEvery), w.beginLastingFaults)
	}
	w.advance(w.termsDone, 1000*time.Hour)
	if !w.violated() {
		w.settleDown()
	}
	w.close()
	w.report.VirtualTime = time.Since(w.began)
	w.print()
	if w.violation != nil {
		return w.report, w.violation
	}
	return w.report, nil
}

// close ends the faults, the leaders and the cluster.
func (w *world) close() {
	w.settling, w.healed = true, true
	for _, l := range w.leaders {
		if l.cancel != nil {
			l.end(errPaused)
			w.unlocked(func() { <-l.done })
		}
	}
	w.judgeStarts(true)
	var err error
	w.unlocked(func() {
		w.faulty.Close()
		<-time.After(longestStop * w.Timeout) // time stops when this goroutine ends
		for _, l := range w.leaders {
			if closer, ok := l.comm.(io.Closer); ok {
				_ = closer.Close()
			}
		}
		err = w.cluster.Close(context.Background())
		synctest.Wait()
	})
	if err != nil {
		w.fail(nil, orchestrator.Term{}, Terminated, "%v", err)
	}
}

// runsOn returns the tasks that a worker runs, in order.
func (w *world) runsOn(worker string) []string {
	return slices.Sorted(slices.Values(w.cluster.RunsOn(worker)))
}

func (w *world) taskNames() []string { return slices.Sorted(maps.Keys(w.tasks)) }

// print writes the transcript, ordered by time.
func (w *world) print() {
	if w.Transcript == nil {
		return
	}
	slices.SortStableFunc(w.transcript, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.lane, b.lane), cmp.Compare(a.text, b.text))
	})
	for _, l := range w.transcript {
		if _, err := fmt.Fprintf(w.Transcript, "%15v  %s\n", l.at, l.text); err != nil {
			return
		}
	}
}

// world is one run. One goroutine, that of Run, processes the schedule and changes the
// world. Leaders and calls have their own goroutines.
type world struct {
	setup
	began     time.Time
	cluster   *memory.Cluster[string, string]
	faulty    *communicatortest.Faulty[string, string]
	drawFault func(communicatortest.Call[string, string]) communicatortest.Fault
	schedule  schedule
	failed    chan struct{} // closed by the first violation
	termsDone chan struct{} // closed when the run has had enough terms

	// mu guards the fields below. The goroutine of Run holds it, except in unlocked. It is
	// never held during a wait.
	mu         sync.Mutex
	settling   bool // only lasting faults remain
	healed     bool // lasting faults have ended too
	workers    map[string]*member
	names      []string // of all workers, members or not
	leaders    []*leader
	byEpoch    map[uint64]*leader
	epoch      uint64 // the coordinator's
	number     uint64 // the latest term that the coordinator knows
	members    []string
	tasks      map[string]orchestrator.Task[string]
	faults     map[fault]time.Time   // the end of each fault that has begun
	forever    time.Time             // the end of lasting faults
	resistance map[string]resistance // by stuck task

	running      map[string][]*run // by task
	lastingBegan bool              // the lasting faults have begun
	pending      []*start
	report       *Report
	violation    *Violation
	transcript   []line
}

func newWorld(p setup) (*world, error) {
	w := &world{
		setup: p, began: time.Now(),
		failed: make(chan struct{}), termsDone: make(chan struct{}),
		workers: make(map[string]*member), byEpoch: make(map[uint64]*leader),
		epoch: 1000, tasks: make(map[string]orchestrator.Task[string]),
		faults: make(map[fault]time.Time), resistance: make(map[string]resistance),
		forever: time.Now().Add(100_000 * time.Hour), running: make(map[string][]*run),
		report: &Report{Runs: 1, Faults: make(map[string]int), Overlaps: make(map[Cause]int)},
	}
	var err, err2 error
	w.drawFault, err = communicatortest.Seeded[string, string](p.network)
	w.cluster, err2 = memory.New(w.runTask, memory.WithReadiness())
	if err = errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	w.faulty = communicatortest.NewFaulty(newLayer(w.deliver, w.applier), w.decide)
	for i := range max(12, min(p.Workers+2, maxWorkers)) {
		name := fmt.Sprint("w", i+1)
		w.names = append(w.names, name)
		w.workers[name] = &member{expectedWorker: expectedWorker{name: name}, index: i, ordered: make(map[string]orchestrator.Term)}
		w.drawSettings(w.workers[name])
	}
	return w, nil
}

// advance processes the schedule until stop is closed, most has passed, or an invariant
// is broken. It returns at an instant of the world's lane, or on a violation.
func (w *world) advance(stop <-chan struct{}, most time.Duration) {
	end := time.Now().Add(most)
	for {
		wait, due := time.Until(end), false
		if len(w.schedule) > 0 {
			if next := time.Until(w.schedule[0].at); next <= wait {
				wait, due = next, true
			}
		}
		over := false
		w.unlocked(func() {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-stop:
				over = true
				worldLane.wait()
			case <-w.failed:
				over = true
			}
		})
		if over || !due {
			return
		}
		w.schedule.do()
	}
}

// unlessSettling schedules an action, which does not happen if the world settles before.
func (w *world) unlessSettling(after time.Duration, do func()) {
	w.schedule.in(after, func() {
		if !w.settling {
			do()
		}
	})
}

// unlocked calls a function that may wait, or that calls the cluster, without mu.
func (w *world) unlocked(do func()) {
	w.mu.Unlock()
	defer w.mu.Lock()
	do()
}

// violated reports whether a violation has ended the run.
func (w *world) violated() bool { return w.violation != nil }

// fail ends the run. If several violations are found at the same instant, the one
// with the smallest text is kept, so that every run reports the same. The caller
// holds mu.
func (w *world) fail(l *leader, term orchestrator.Term, broken Invariant, format string, args ...any) {
	v := &Violation{w.seed, time.Since(w.began), l.lane(), term, broken, fmt.Sprintf(format, args...)}
	if old := w.violation; old != nil {
		if old.At == v.At && v.Error() < old.Error() {
			w.violation = v
		}
		return
	}
	w.violation = v
	close(w.failed)
}

// line is a line of the transcript.
type line struct {
	at   time.Duration
	lane lane
	text string
}

// note adds a line to the transcript. The caller holds mu.
func (w *world) note(who lane, format string, args ...any) {
	if w.Transcript == nil || w.violation != nil {
		return
	}
	w.transcript = append(w.transcript, line{time.Since(w.began), who, fmt.Sprintf(format, args...)})
}

// countEvent records an event. The caller holds mu.
func (w *world) countEvent(kind Event, format string, args ...any) {
	w.report.Faults[kind.String()]++
	w.note(worldLane, "%v: %s", kind, fmt.Sprintf(format, args...))
}
