package simulator

// Run: one run, from its seed to its report.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator"
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
