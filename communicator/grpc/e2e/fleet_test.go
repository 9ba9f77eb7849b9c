package e2e_test

// The fleet: the processes, the connections between them, and their journal.

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

var (
	rounds = flag.Int("proof.rounds", 2, "number of `rounds` of faults in the longest test")
	seed   = flag.Uint64("proof.seed", 1, "seed of the random faults")
)

const (
	managerRole = "manager"
	workerRole  = "worker"
)

func TestMain(m *testing.M) {
	proctest.Main(m, map[string]proctest.Role{managerRole: proctest.NewRole(runManager), workerRole: proctest.NewRole(runWorker)})
}

// The kinds of events of this package.
const (
	serves     = "serves"      // a manager can be reached from now on
	leads      = "leads"       // a manager has run its first term
	found      = "found"       // a starting manager found a completion in the store
	recorded   = "recorded"    // a completion was saved
	forgotten  = "forgotten"   // a completion was deleted
	did        = "did"         // a task has completed
	checked    = "check"       // the result of worker.Check after a pause
	lastResort = "last resort" // a worker's process ends itself
)

// fleet is a manager and its workers.
type fleet struct {
	*proctest.Group
	settings settings
	manager  *proctest.Process
	address  string // of the manager
	control  *controlClient
	workers  []*member
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
	f := &fleet{Group: proctest.NewGroup(t), settings: s, address: address, control: newControlClient(control)}
	f.manager = f.Start(managerRole, managerRole, managerSettings{
		Journal: f.Path(), Store: filepath.Join(f.Dir, "store"), Listen: f.address, Control: control, settings: s,
	})
	for i, listen := range listen {
		m := &member{name: fmt.Sprintf("w%02d", i), up: f.proxy(f.address), down: f.proxy(listen)}
		m.Process = kind(f, m, listen)
		f.workers = append(f.workers, m)
	}
	return f
}

func (f *fleet) goWorker(m *member, listen string) *proctest.Process {
	return f.Start(m.name, workerRole, workerSettings{
		Name: m.name, Journal: f.Path(), Record: filepath.Join(f.Dir, m.name),
		Manager: m.up.Addr(), Listen: listen, Advertise: m.down.Addr(), settings: f.settings,
	})
}

func (f *fleet) proxy(to string) *netfault.Proxy {
	p, err := netfault.New(to)
	require.NoError(f.T, err)
	f.T.Cleanup(func() { _ = p.Close() })
	return p
}

// put makes tasks expected, all with the same content.
func (f *fleet) put(content string, names ...string) {
	f.T.Helper()
	var items []manager.Item
	for _, name := range names {
		items = append(items, manager.Item{Name: name, Content: []byte(content)})
	}
	f.Wait("the manager takes tasks", time.Minute, func() bool { return f.control.put(items) })
}

// names returns n names with a prefix.
func names(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%03d", prefix, i)
	}
	return names
}

// settled reports whether exactly so many tasks run, each once, spread evenly over
// the present workers.
func (f *fleet) settled(tasks int) bool {
	f.Look()
	var there []string
	for _, m := range f.workers {
		if m.Alive() {
			there = append(there, m.name)
		}
	}
	return f.History.IsEven(tasks, there)
}

// of returns the current runs on a node, by task.
func (f *fleet) of(node string) map[string]*proctest.Run {
	f.Look()
	runs := map[string]*proctest.Run{}
	for _, r := range f.History.Runs() {
		if r.Node == node && r.To == proctest.EndOfTime {
			runs[r.Task] = r
		}
	}
	return runs
}

// elsewhere reports whether all tasks of these runs are running, none of them on
// that node.
func (f *fleet) elsewhere(runs map[string]*proctest.Run, node string) bool {
	running := f.Look()
	for task := range runs {
		if where := running[task]; len(where) != 1 || where[0] == node {
			return false
		}
	}
	return true
}

// lasting returns all current runs.
func (f *fleet) lasting() []*proctest.Run {
	f.Look()
	return slices.DeleteFunc(slices.Clone(f.History.Runs()), func(r *proctest.Run) bool { return r.To != proctest.EndOfTime })
}

// startedIn returns the runs that began in an interval.
func (f *fleet) startedIn(from, to int64) []proctest.Run {
	f.Look()
	var runs []proctest.Run
	for _, r := range f.History.Runs() {
		if from <= r.From && r.From < to {
			runs = append(runs, *r)
		}
	}
	return runs
}

// until waits until a duration has passed since a time.
func (f *fleet) until(since int64, d time.Duration) {
	f.Pass(d - time.Duration(proctest.Now()-since))
}
