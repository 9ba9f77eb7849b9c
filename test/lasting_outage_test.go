package test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

// T9: all starts fail for a while, or many new tasks fail in every term.

// running counts the tasks that run.
func (f *fleet) running() (n int) {
	for _, load := range f.loads() {
		n += load
	}
	return n
}

// leastRunning returns how many tasks ran at the same time at least, once n did.
func (f *fleet) leastRunning(n int) (least int) {
	least = n
	running, reached := 0, false
	for _, e := range f.Events() {
		switch e.Kind {
		case memory.TaskStarted:
			running++
		case memory.TaskStopped:
			running--
		}
		reached = reached || running == n
		if reached {
			least = min(least, running)
		}
	}
	return least
}

// For ten minutes every start fails. The leader has a reason to move tasks, and
// each move stops one.
func TestT9_AnOutageOfAllStartsStopsLittle(t *testing.T) {
	reasons := []struct {
		name string
		give func(*service)
	}{
		{"a joiner", func(s *service) { s.join("w11") }},
		{"a drain", func(s *service) { require.NoError(s.t, s.DrainWorker("w1")) }},
	}
	faults := []struct {
		name  string
		fault func(context.Context) error
	}{
		{"refused", func(context.Context) error { return errRejected }},
		{"fail", func(context.Context) error { return errBoom }},
		{"hang", hang},
	}
	for _, reason := range reasons {
		for _, fault := range faults {
			t.Run(reason.name+", starts "+fault.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newService(t, 10)
					s.expect(1000)
					require.NoError(t, s.NextTerm(t.Context()))
					s.intercept(on(orchestrator.OpAdd, "", "", fault.fault))
					s.start(tick)
					reason.give(s)
					time.Sleep(10 * time.Minute)
					least := s.leastRunning(1000) // after it, healthy moves stop some too
					s.intercept(nil)
					after := s.untilAllRun(10 * time.Minute)
					t.Logf("at least %d of 1,000 ran on", least)
					require.GreaterOrEqual(t, least, 950)
					require.LessOrEqual(t, after, 20*time.Second)
					s.requireNeverTwice()
				})
			})
		}
	}
}

// In each of 100 terms some new tasks arrive that no worker can start, and two
// that are healthy. A worker joins after half of them.
func TestT9_NewPoisonEveryTermHurtsNoHealthyWorker(t *testing.T) {
	for _, test := range []struct {
		name   string
		poison int
		fault  error
		start  func(*testing.T, int, ...option) *fleet
	}{
		{"5 refused, calls", 5, errRejected, newFleet},
		{"5 failing, batches", 5, errBoom, newBatchFleet},
		{"30 refused, batches", 30, errRejected, newBatchFleet},
		{"30 failing, calls", 30, errBoom, newFleet},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := test.start(t, 10)
				f.expect(100)
				f.term()
				f.Refuse(func(op orchestrator.Op, _, task string) error {
					if op == orchestrator.OpAdd && strings.HasPrefix(task, "poison") {
						return test.fault
					}
					return nil
				})
				p := poisoned{fleet: f, added: make(map[string]int)}
				for term := range 100 {
					if term == 50 {
						f.join("w11")
						p.joined = term
					}
					p.step(term, test.poison)
				}
				for term := 100; term < 164 && !p.settled(); term++ {
					p.step(term, 0)
				}
				t.Logf("joiner's share after %d terms; a healthy task waited %d terms at most; quarantined at some time: %v",
					p.share, p.worst, p.blamed)
				require.Empty(t, p.blamed)
				require.LessOrEqual(t, p.worst, 5, "terms that a healthy task waited")
				require.Positive(t, p.share)
				require.LessOrEqual(t, p.share, 10, "terms until the joiner has its share")
			})
		})
	}
}

// poisoned is a fleet to which poison tasks are added.
type poisoned struct {
	*fleet
	added  map[string]int // healthy tasks that do not run yet, and the term that they came in
	worst  int            // terms that a healthy task waited at most
	joined int            // the term that w11 joined in
	share  int            // terms until w11 had its share, 0: not yet
	blamed []string       // workers that were quarantined at some time
}

// step adds tasks, runs a term and looks at its outcome.
func (p *poisoned) step(term, poison int) {
	if poison > 0 {
		var tasks []string
		for i := range poison {
			tasks = append(tasks, fmt.Sprintf("poison%d-%d", term, i))
		}
		for i := range 2 {
			name := fmt.Sprintf("healthy%d-%d", term, i)
			tasks = append(tasks, name)
			p.added[name] = term
		}
		p.addAtOnce(tasks)
	}
	p.steadyTerm()
	for name, since := range p.added {
		p.worst = max(p.worst, term-since)
		if len(p.Running(name)) == 1 {
			delete(p.added, name)
		}
	}
	for _, name := range p.quarantined() {
		if !slices.Contains(p.blamed, name) {
			p.blamed = append(p.blamed, name)
		}
	}
	if p.joined > 0 && p.share == 0 && len(p.RunsOn("w11")) >= p.running()/len(p.workers) {
		p.share = term - p.joined + 1
	}
}

// settled reports whether everything healthy runs and w11 has its share.
func (p *poisoned) settled() bool { return len(p.added) == 0 && p.share > 0 }
