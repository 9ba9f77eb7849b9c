package e2e_test

// The fleet: the processes, the connections between them, and their journal.

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

// fleet is a manager and its workers.
type fleet struct {
	t        *testing.T
	settings settings
	dir      string
	manager  *proctest.Process
	address  string // of the manager
	control  *controlClient
	workers  []*member
	journal  *proctest.Journal
	reader   *proctest.Reader
	events   []proctest.Event
	history  *proctest.History
}

// member is a worker's process, followed by its successors of the same name.
type member struct {
	*proctest.Process
	name string
	up   *netfault.Proxy // from the worker to the manager
	down *netfault.Proxy // from the manager to the worker
}

// startFleet starts a manager and n workers.
func startFleet(t *testing.T, n int, s settings) *fleet {
	t.Helper()
	return startFleetOf(t, n, s, (*fleet).goWorker)
}

// startFleetOf starts a manager and n workers. kind starts a worker's process.
func startFleetOf(t *testing.T, n int, s settings, kind func(f *fleet, m *member, listen string) *proctest.Process) *fleet {
	t.Helper()
	free := proctest.FreeAddrs(t, n+2)
	address, control, listen := free[0], free[1], free[2:]
	f := &fleet{t: t, settings: s, dir: t.TempDir(), address: address, control: newControlClient(control), history: proctest.NewHistory()}
	var err error
	f.journal, err = proctest.OpenJournal(f.path(), "test")
	require.NoError(t, err)
	f.reader = proctest.OpenReader(t, f.path())

	f.manager = &proctest.Process{T: t, Role: managerRole, Journal: f.journal, Settings: managerSettings{
		Journal: f.path(), Store: filepath.Join(f.dir, "store"), Listen: f.address, Control: control, settings: s,
	}}
	f.manager.Start()
	for i, listen := range listen {
		m := &member{name: fmt.Sprintf("w%02d", i), up: f.proxy(f.address), down: f.proxy(listen)}
		m.Process = kind(f, m, listen)
		m.Start()
		f.workers = append(f.workers, m)
	}
	return f
}

// path returns the path of the journal.
func (f *fleet) path() string { return filepath.Join(f.dir, "journal") }

func (f *fleet) goWorker(m *member, listen string) *proctest.Process {
	return &proctest.Process{T: f.t, Role: workerRole, Journal: f.journal, Settings: workerSettings{
		Name: m.name, Journal: f.path(), Record: filepath.Join(f.dir, m.name),
		Manager: m.up.Addr(), Listen: listen, Advertise: m.down.Addr(), settings: f.settings,
	}}
}

func (f *fleet) proxy(to string) *netfault.Proxy {
	p, err := netfault.New(to)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = p.Close() })
	return p
}

// put makes tasks expected, all with the same content.
func (f *fleet) put(content string, names ...string) {
	f.t.Helper()
	var items []manager.Item
	for _, name := range names {
		items = append(items, manager.Item{Name: name, Content: []byte(content)})
	}
	f.wait("the manager takes tasks", time.Minute, func() bool { return f.control.put(items) })
}

// names returns n names with a prefix.
func names(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%03d", prefix, i)
	}
	return names
}

// look reads the journal, and returns where each task runs.
func (f *fleet) look() map[string][]string {
	f.t.Helper()
	events := f.reader.Next()
	f.events = append(f.events, events...)
	require.NoError(f.t, f.history.Add(events...))
	return f.history.Running()
}

// settled reports whether exactly so many tasks run, each once, spread evenly over
// the present workers.
func (f *fleet) settled(tasks int) bool {
	f.look()
	var there []string
	for _, m := range f.workers {
		if m.Alive() {
			there = append(there, m.name)
		}
	}
	return f.history.IsEven(tasks, there)
}

// of returns the current runs on a node, by task.
func (f *fleet) of(node string) map[string]*proctest.Run {
	f.look()
	runs := map[string]*proctest.Run{}
	for _, r := range f.history.Runs() {
		if r.Node == node && r.To == proctest.EndOfTime {
			runs[r.Task] = r
		}
	}
	return runs
}

// elsewhere reports whether all tasks of these runs are running, none of them on
// that node.
func (f *fleet) elsewhere(runs map[string]*proctest.Run, node string) bool {
	running := f.look()
	for task := range runs {
		if where := running[task]; len(where) != 1 || where[0] == node {
			return false
		}
	}
	return true
}

// lasting returns all current runs.
func (f *fleet) lasting() []*proctest.Run {
	f.look()
	return slices.DeleteFunc(slices.Clone(f.history.Runs()), func(r *proctest.Run) bool { return r.To != proctest.EndOfTime })
}

// startedIn returns the runs that began in an interval.
func (f *fleet) startedIn(from, to int64) []proctest.Run {
	f.look()
	var runs []proctest.Run
	for _, r := range f.history.Runs() {
		if from <= r.From && r.From < to {
			runs = append(runs, *r)
		}
	}
	return runs
}

// first returns the first event of a kind since a time, or nil.
func (f *fleet) first(kind string, since int64) *proctest.Event {
	f.look()
	for i := range f.events {
		if e := &f.events[i]; e.Kind == kind && e.At >= since {
			return e
		}
	}
	return nil
}

// await waits for the first event of a kind since a time.
func (f *fleet) await(kind string, since int64, within time.Duration) proctest.Event {
	f.t.Helper()
	f.wait(kind, within, func() bool { return f.first(kind, since) != nil })
	return *f.first(kind, since)
}

// wait waits until cond returns true, and fails the test if that takes too long.
func (f *fleet) wait(what string, within time.Duration, cond func() bool) {
	f.t.Helper()
	begin := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Since(begin) > within {
			require.FailNow(f.t, "not in time", "%s: not within %v; running: %v\n%s", what, within, f.look(), f.logs())
		}
		<-tick.C
	}
}

// pass waits while the processes continue.
func (f *fleet) pass(d time.Duration) { <-time.After(d) }

// until waits until a duration has passed since a time.
func (f *fleet) until(since int64, d time.Duration) {
	f.pass(d - time.Duration(proctest.Now()-since))
}

// restart starts the workers again that have ended by their last resort, because
// they could not stop in time.
func (f *fleet) restart() {
	for _, m := range f.workers {
		if !m.Alive() {
			m.Start()
		}
	}
}

// logs returns the last lines of each process's output.
func (f *fleet) logs() string {
	var b strings.Builder
	fmt.Fprintf(&b, "--- manager\n%s\n", f.manager.Output.Tail())
	for _, m := range f.workers {
		fmt.Fprintf(&b, "--- %s\n%s\n", m.name, m.Output.Tail())
	}
	return b.String()
}

// report logs the measured durations.
func report(t *testing.T, what string, took []time.Duration) {
	t.Helper()
	if len(took) == 0 {
		t.Logf("%s: never", what)
		return
	}
	slices.Sort(took)
	t.Logf("%s: median %v, maximum %v, of %d", what,
		took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), len(took))
}
