package simulator

// The world: everything that there is in a run, and how time goes by in it.

import (
	"fmt"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/communicatortest"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

// namesOfWorkers is how many names of workers there are.
const namesOfWorkers = 12

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
	mu        sync.Mutex
	calm      bool // nothing goes wrong any more
	workers   map[string]*member
	names     []string // of all workers, present or not
	leaders   []*leader
	byEpoch   map[uint64]*leader
	epoch     uint64 // the coordinator's
	number    uint64 // of the latest term that the coordinator has heard of
	members   []string
	tasks     map[string]orchestrator.Task[string]
	poison    map[string]time.Time       // tasks that nobody can start until then
	running   map[string][]*run          // by task
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
		poison: make(map[string]time.Time), running: make(map[string][]*run), stops: make(map[string]map[string]stop),
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
	for i := range namesOfWorkers {
		name := fmt.Sprint("w", i+1)
		w.names = append(w.names, name)
		w.workers[name] = &member{name: name, index: i}
	}
	return w, nil
}

// populate has the first workers join, and the first tasks be expected.
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
// every run, whoever came first. mu is held.
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

// trouble takes note of something that goes wrong. mu is held.
func (w *world) trouble(kind Trouble, format string, args ...any) {
	w.report.Faults[kind.String()]++
	w.note(worldLane, "%v: %s", kind, fmt.Sprintf(format, args...))
}
