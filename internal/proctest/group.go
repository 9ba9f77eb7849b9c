package proctest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Group is the processes of one test, with one journal. Only the test's goroutine may use it.
type Group struct {
	T       *testing.T
	Dir     string   // for files of the processes; removed with the test
	Journal *Journal // for events of the test
	Events  []Event  // read so far
	History *History // of Events

	reader    *Reader
	processes []*Process
	waited    func() time.Duration // as MeasureWaiting returns it
}

// NewGroup returns a group without processes. Its journal is empty.
func NewGroup(t *testing.T) *Group {
	t.Helper()
	g := &Group{T: t, Dir: t.TempDir(), History: NewHistory(), waited: MeasureWaiting(t)}
	var err error
	if g.Journal, err = OpenJournal(g.Path(), "test"); err != nil {
		t.Fatal(err)
	}
	g.reader = OpenReader(t, g.Path())
	return g
}

// Path returns the path of the journal.
func (g *Group) Path() string { return filepath.Join(g.Dir, "journal") }

// Start starts a process that executes role with settings. The journal records its
// end. Logs has its output, below its name.
func (g *Group) Start(name, role string, settings any) *Process {
	g.T.Helper()
	return g.start(&Process{Name: name, Role: role, Settings: settings})
}

// StartCommand is Start for any command with its arguments.
func (g *Group) StartCommand(name string, command ...string) *Process {
	g.T.Helper()
	return g.start(&Process{Name: name, Command: command})
}

func (g *Group) start(p *Process) *Process {
	g.T.Helper()
	p.T, p.Journal = g.T, g.Journal
	p.Start()
	g.processes = append(g.processes, p)
	return p
}

// Restart starts again each process that has ended.
func (g *Group) Restart() {
	g.T.Helper()
	for _, p := range g.processes {
		if !p.Alive() {
			p.Start()
		}
	}
}

// Look reads new events of the journal, and returns the nodes that run each task.
func (g *Group) Look() map[string][]string {
	g.T.Helper()
	events := g.reader.Next()
	g.Events = append(g.Events, events...)
	if err := g.History.Add(events...); err != nil {
		g.T.Fatal(err)
	}
	return g.History.Running()
}

// Count returns how many of Events are of a kind.
func (g *Group) Count(kind string) (n int) {
	for _, e := range g.Events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// First returns the first event of a kind since a time, or nil.
func (g *Group) First(kind string, since int64) *Event {
	g.T.Helper()
	g.Look()
	for i := range g.Events {
		if e := &g.Events[i]; e.Kind == kind && e.At >= since {
			return e
		}
	}
	return nil
}

// Await waits for the first event of a kind since a time.
func (g *Group) Await(kind string, since int64, within time.Duration) Event {
	g.T.Helper()
	g.Wait(kind, within, func() bool { return g.First(kind, since) != nil })
	return *g.First(kind, since)
}

// Wait waits until cond returns true, and returns how long that took. After the given
// time it fails the test with what runs and with Logs. The time that a process must wait
// for a processor does not count.
func (g *Group) Wait(what string, within time.Duration, cond func() bool) time.Duration {
	g.T.Helper()
	begin, waited := time.Now(), g.waited()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Since(begin)-(g.waited()-waited) > within {
			g.T.Fatalf("%s: not within %v; running: %v\n%s", what, within, g.Look(), g.Logs())
		}
		<-tick.C
	}
	return time.Since(begin)
}

// Pass waits while the processes run.
func (g *Group) Pass(d time.Duration) { <-time.After(d) }

// Logs returns the last output of each process.
func (g *Group) Logs() string {
	var b strings.Builder
	for _, p := range g.processes {
		fmt.Fprintf(&b, "--- %s\n%s\n", p.Name, p.Output.Tail())
	}
	return b.String()
}

// Draw returns a random sequence of rounds numbers below n: each once, then each again
// in another order.
func Draw(random *rand.Rand, rounds, n int) []int {
	var order []int
	for len(order) < rounds {
		order = append(order, random.Perm(n)...)
	}
	return order[:rounds]
}

// Report logs the median and the maximum of durations.
func Report(t testing.TB, what string, took []time.Duration) {
	t.Helper()
	if len(took) == 0 {
		t.Logf("%s: never", what)
		return
	}
	slices.Sort(took)
	t.Logf("%s: median %v, maximum %v, of %d", what,
		took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), len(took))
}

// SetParallel sets how many tests of a package run at the same time, unless the flag
// -parallel does. The default, the number of processors, is too few for tests that wait.
func SetParallel(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(n)) // a number is valid
	}
}

// MeasureWaiting measures how long this process, when it wants to run, waits for a processor,
// from now until the end of the test. waited returns the sum so far: it is almost 0 on a
// quiet machine. A test subtracts it from the time that something took.
func MeasureWaiting(t testing.TB) (waited func() time.Duration) {
	const every, slack = 10 * time.Millisecond, 2 * time.Millisecond
	var sum atomic.Int64
	done := make(chan struct{})
	var measuring sync.WaitGroup
	measuring.Go(func() {
		for {
			began := time.Now()
			select {
			case <-done:
				return
			case <-time.After(every):
			}
			if late := time.Since(began) - every - slack; late > 0 {
				sum.Add(int64(late))
			}
		}
	})
	t.Cleanup(func() {
		close(done)
		measuring.Wait()
	})
	return func() time.Duration { return time.Duration(sum.Load()) }
}
