package simulator

// Run: one run, from its seed to its report.

import (
	"context"
	"fmt"
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
	w.note(worldLane, "%v", &w.setup)
	w.mu.Unlock()
	w.populate()
	if first := w.elect(); first != nil {
		w.lead(first)
	}
	w.schedule.in(w.eventEvery, func() { w.inject(1) })
	if rnd := newRandom(w.seed, "begin"); w.slowLists > 0 {
		w.beginLastingFaults()
	} else if rnd.chance(0.5) {
		w.schedule.in(rnd.between(0, time.Duration(w.terms)*w.eventEvery), w.beginLastingFaults)
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
	w.mu.Lock()
	w.settling, w.healed = true, true
	w.mu.Unlock()
	for _, l := range w.leaders {
		if l.cancel != nil {
			l.end(errPaused)
			<-l.done
		}
	}
	w.faulty.Close()
	<-time.After(longestStop * w.Timeout) // time stops when this goroutine ends
	for _, l := range w.leaders {
		l.close()
	}
	if err := w.cluster.Close(w.context()); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fail(nil, orchestrator.Term{}, Terminated, "%v", err)
	}
	synctest.Wait()
}

// context returns the parent of all contexts of a run.
func (w *world) context() context.Context { return context.Background() }

func (w *world) taskNames() []string { return slices.Sorted(maps.Keys(w.tasks)) }

// print writes the transcript, ordered by time.
func (w *world) print() {
	if w.Transcript == nil {
		return
	}
	slices.SortStableFunc(w.transcript, func(a, b line) int {
		switch {
		case a.at != b.at:
			return int(a.at - b.at)
		case a.lane != b.lane:
			return int(a.lane - b.lane)
		case a.text < b.text:
			return -1
		case a.text > b.text:
			return 1
		}
		return 0
	})
	for _, l := range w.transcript {
		if _, err := fmt.Fprintf(w.Transcript, "%15v  %s\n", l.at, l.text); err != nil {
			return
		}
	}
	if v := w.violation; v != nil {
		_, _ = fmt.Fprintf(w.Transcript, "%15v  VIOLATION: invariant %q: %s\n", v.At, v.Invariant, v.Text)
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

	// mu guards the fields below. It is never held during a wait or a call to the
	// orchestrator or the cluster.
	mu       sync.Mutex
	settling bool // only lasting faults remain
	healed   bool // lasting faults have ended too
	workers  map[string]*member
	names    []string // of all workers, members or not
	leaders  []*leader
	byEpoch  map[uint64]*leader
	epoch    uint64 // the coordinator's
	number   uint64 // the latest term that the coordinator knows
	members  []string
	tasks    map[string]orchestrator.Task[string]
	// Until the time given, no worker can start a task in poisonTasks, starts of one in
	// hangingTasks hang, and one in stuckTasks cannot be stopped. Until outage, no worker
	// can start anything. forever is the end of lasting faults.
	poisonTasks, hangingTasks map[string]time.Time
	stuckTasks                map[string]stuck
	outage, forever           time.Time

	running      map[string][]*run          // by task
	lastingBegan bool                       // the lasting faults have begun
	stops        map[string]map[string]stop // by task and worker
	pending      []*overlap
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
		poisonTasks: make(map[string]time.Time), hangingTasks: make(map[string]time.Time), stuckTasks: make(map[string]stuck),
		forever: time.Now().Add(100_000 * time.Hour), running: make(map[string][]*run), stops: make(map[string]map[string]stop),
		report: newReport(),
	}
	w.report.Runs = 1
	var err error
	if w.drawFault, err = communicatortest.Seeded[string, string](p.network); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	if w.cluster, err = memory.New(w.runTask, memory.WithReadiness()); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	w.faulty = communicatortest.NewFaulty(w.workersSide(), w.decide)
	for i := range max(12, min(p.Workers+2, maxWorkers)) {
		name := fmt.Sprint("w", i+1)
		w.names = append(w.names, name)
		w.workers[name] = &member{name: name, index: i}
		w.drawSettings(w.workers[name])
	}
	return w, nil
}

// populate adds the first workers and tasks.
func (w *world) populate() {
	for _, name := range w.names[:w.Workers] {
		w.join(w.workers[name])
	}
	rnd := newRandom(w.seed, "tasks")
	for i := range w.Tasks {
		w.define(w.newTask(fmt.Sprint("t", i+1), &rnd))
	}
}

// advance processes the schedule until stop is closed, most has passed, or an invariant
// is broken. It returns at an instant of the world's lane, or on a violation.
func (w *world) advance(stop <-chan struct{}, most time.Duration) {
	end := time.Now().Add(most)
	for {
		wait := time.Until(end)
		next, some := w.schedule.next()
		if some = some && next <= wait; some {
			wait = next
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			if !some {
				return
			}
			w.schedule.do()
		case <-stop:
			timer.Stop()
			worldLane.await()
			return
		case <-w.failed:
			timer.Stop()
			return
		}
	}
}

// violated reports whether a violation has ended the run.
func (w *world) violated() bool {
	select {
	case <-w.failed:
		return true
	default:
		return false
	}
}

// fail ends the run. If several violations are found at the same instant, the one
// with the smallest text is kept, so that every run reports the same. The caller
// holds mu.
func (w *world) fail(l *leader, term orchestrator.Term, broken Invariant, format string, args ...any) {
	v := &Violation{
		Seed: w.seed, At: time.Since(w.began), Term: term, Invariant: broken, Text: fmt.Sprintf(format, args...),
	}
	if l != nil {
		v.Leader = l.number
	}
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
