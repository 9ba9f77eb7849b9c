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

// Run makes one run, in a bubble of testing/synctest of its own, and reports on
// it. Everything that happens follows from the seed and the settings: the same
// again whenever it is called with the same, on whatever machine.
//
// The error is a [*Violation] where an invariant did not hold, after which the
// run was ended; or wraps orchestrator.ErrInvalid and names every setting that
// is out of range. Run uses t for the bubble, and never fails it. It may be
// called from parallel tests, but not from within a bubble.
func Run(t *testing.T, seed uint64, s Settings) (report *Report, err error) {
	t.Helper()
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	// A goroutine that spins in the bubble stops its time, and no timeout in it
	// ever comes.
	slow := time.AfterFunc(time.Minute, func() {
		t.Logf("seed %d has taken a minute of real time: does something spin, or wait for a mutex that is held over a call (C1)?", seed)
	})
	defer slow.Stop()
	defer func() {
		// What synctest says where goroutines are left that nothing wakes.
		if v := recover(); v != nil {
			err = &Violation{Seed: seed, Invariant: Ended, Text: fmt.Sprint(v)}
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
	w.agenda.in(w.pace, func() { w.weather(1) })
	if d := throw(w.seed, "begin"); w.slow > 0 {
		w.afflictForGood()
	} else if d.chance(0.5) {
		w.agenda.in(d.between(0, time.Duration(w.terms)*w.pace), w.afflictForGood)
	}
	w.live(w.enough, 1000*time.Hour)
	if !w.violated() {
		w.settleDown()
	}
	w.close()
	w.report.Virtual = time.Since(w.began)
	w.print()
	if w.violation != nil {
		return w.report, w.violation
	}
	return w.report, nil
}

// close ends everything.
func (w *world) close() {
	w.mu.Lock()
	w.calm, w.mended = true, true
	w.mu.Unlock()
	for _, l := range w.leaders {
		if l.cancel != nil {
			l.end(errPaused)
			<-l.done
		}
	}
	w.faulty.Close()
	<-time.After(longestStop * w.Timeout) // time stands still when this goroutine ends
	for _, l := range w.leaders {
		l.close()
	}
	if err := w.cluster.Close(w.context()); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fail(nil, orchestrator.Term{}, Ended, "%v", err)
	}
	synctest.Wait()
}

// context is the one that everything in a run starts from.
func (w *world) context() context.Context { return context.Background() }

func (w *world) taskNames() []string { return slices.Sorted(maps.Keys(w.tasks)) }

// print writes the transcript, in the order of time.
func (w *world) print() {
	if w.Transcript == nil {
		return
	}
	slices.SortStableFunc(w.script, func(a, b line) int {
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
	for _, l := range w.script {
		if _, err := fmt.Fprintf(w.Transcript, "%15v  %s\n", l.at, l.text); err != nil {
			return
		}
	}
	if v := w.violation; v != nil {
		_, _ = fmt.Fprintf(w.Transcript, "%15v  VIOLATION: not %s: %s\n", v.At, v.Invariant, v.Text)
	}
}

// world is one run. One goroutine, that of Run, works off the agenda and
// changes what there is; leaders and calls have goroutines of their own.
type world struct {
	setup
	began   time.Time
	cluster *memory.Cluster[string, string]
	faulty  *communicatortest.Faulty[string, string]
	seeded  func(communicatortest.Call[string, string]) communicatortest.Fault
	agenda  agenda
	over    chan struct{} // closed by the first violation
	enough  chan struct{} // closed when there were as many terms as there are to be

	// mu guards what follows. It is never held over a wait, nor over a call to
	// the orchestrator or to the cluster.
	mu      sync.Mutex
	calm    bool // no fault is on that ends by itself, and
	mended  bool // none that does not
	workers map[string]*member
	names   []string // of all workers, present or not
	leaders []*leader
	byEpoch map[uint64]*leader
	epoch   uint64 // the coordinator's
	number  uint64 // of the latest term that the coordinator has heard of
	members []string
	tasks   map[string]orchestrator.Task[string]
	// Until when no worker can start a task, starts of it hang, and it cannot be
	// stopped; and until when no worker can start anything.
	poison, hanging map[string]time.Time
	stuck           map[string]stuck
	outage, forever time.Time

	running   map[string][]*run          // by task
	afflicted bool                       // the faults have begun that do not end by themselves
	stops     map[string]map[string]stop // by task and worker
	pending   []*overlap
	report    *Report
	violation *Violation
	script    []line
}

func newWorld(p setup) (*world, error) {
	w := &world{
		setup: p, began: time.Now(),
		over: make(chan struct{}), enough: make(chan struct{}),
		workers: make(map[string]*member), byEpoch: make(map[uint64]*leader),
		epoch: 1000, tasks: make(map[string]orchestrator.Task[string]),
		poison: make(map[string]time.Time), hanging: make(map[string]time.Time), stuck: make(map[string]stuck),
		forever: time.Now().Add(100_000 * time.Hour), running: make(map[string][]*run), stops: make(map[string]map[string]stop),
		report: newReport(),
	}
	w.report.Runs = 1
	var err error
	if w.seeded, err = communicatortest.Seeded[string, string](p.network); err != nil {
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
	}
	return w, nil
}

// populate adds the first workers and tasks.
func (w *world) populate() {
	for _, name := range w.names[:w.Workers] {
		w.join(w.workers[name])
	}
	d := throw(w.seed, "tasks")
	for i := range w.Tasks {
		w.define(w.newTask(fmt.Sprint("t", i+1), &d))
	}
}

// live works off the agenda until stop is closed, or for as long as it may
// take, or until a violation. It returns in an instant of the world's.
func (w *world) live(stop <-chan struct{}, most time.Duration) {
	end := time.Now().Add(most)
	for {
		wait := time.Until(end)
		next, some := w.agenda.next()
		if some = some && next <= wait; some {
			wait = next
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			if !some {
				return
			}
			w.agenda.do()
		case <-stop:
			timer.Stop()
			worldLane.await()
			return
		case <-w.over:
			timer.Stop()
			return
		}
	}
}

// violated reports whether the run is over because of a violation.
func (w *world) violated() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// fail ends the run. Of what is found in the same instant the same is kept in
// every run, whichever came first. mu is held.
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
	close(w.over)
}

// line is a line of the transcript.
type line struct {
	at   time.Duration
	lane lane
	text string
}

// note adds a line to the transcript. mu is held.
func (w *world) note(who lane, format string, args ...any) {
	if w.Transcript == nil || w.violation != nil {
		return
	}
	w.script = append(w.script, line{time.Since(w.began), who, fmt.Sprintf(format, args...)})
}

// trouble records something that goes wrong. mu is held.
func (w *world) trouble(kind Trouble, format string, args ...any) {
	w.report.Faults[kind.String()]++
	w.note(worldLane, "%v: %s", kind, fmt.Sprintf(format, args...))
}
