package e2e_test

// Connections are cut and processes suspended in many rounds, and no task ever runs
// in two places.

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

// fault affects a worker or the manager until it is undone.
type fault struct {
	name  string
	do    func(*member)
	undo  func(*member) // nil: heal its connections
	loses loss
}

// loss is the effect of a fault on the worker's lease.
type loss int

const (
	keeps      loss = iota // the lease may be kept: the fault lasts for a lease and a half
	loses                  // the lease is lost: the tasks are started elsewhere before the fault is undone
	losesLater             // the same, once the manager has found that it cannot call the worker
)

func (f *fleet) faults() []fault {
	cut := func(up, down netfault.Direction) func(*member) {
		return func(m *member) {
			m.up.Cut(up)
			m.down.Cut(down)
		}
	}
	half := func(d netfault.Direction) func(*member) {
		return func(m *member) {
			for _, p := range []*netfault.Proxy{m.up, m.down} {
				for _, c := range p.Conns() {
					c.CloseHalf(d)
				}
			}
		}
	}
	return []fault{
		{name: "a worker is cut off", do: cut(netfault.Both, netfault.Both), loses: loses},
		{name: "what a worker says is cut off", do: cut(netfault.Up, 0), loses: loses},
		{name: "the answers to a worker are cut off", do: cut(netfault.Down, 0), loses: loses},
		{name: "a worker is cut off, and can be called", do: cut(netfault.Both, 0), loses: loses},
		{name: "a worker cannot be called, and says all is well", do: cut(0, netfault.Both), loses: losesLater},
		{name: "a worker's answers are cut off, and it says all is well", do: cut(0, netfault.Down), loses: losesLater},
		{name: "calls do not reach a worker that says all is well", do: cut(0, netfault.Up), loses: losesLater},
		{name: "a worker hangs up, and listens on", do: half(netfault.Up)},
		{name: "a worker is hung up on, and may talk on", do: half(netfault.Down)},
		{name: "a worker's answers come late by more than a lease", do: func(m *member) {
			m.up.Delay(netfault.Both, f.settings.Lease)
		}, loses: loses},
		{name: "a worker's answers come just in time, and then it is cut off", do: func(m *member) {
			// A worker that measured the lease from the answer would stop too late.
			m.up.Delay(netfault.Down, f.settings.Lease*9/40)
			f.Pass(f.settings.Lease / 2)
			m.up.Cut(netfault.Up)
		}, loses: losesLater},
		{name: "the manager's calls come late by more than a lease", do: func(m *member) {
			m.down.Delay(netfault.Up, f.settings.Lease+f.settings.Lease/2)
		}},
		{name: "the manager stands still", do: func(*member) { f.manager.Pause() }, undo: func(*member) { f.manager.Resume() }},
		{name: "the manager is killed while a worker is cut off", do: func(m *member) {
			cut(netfault.Both, netfault.Both)(m)
			f.manager.Kill()
			f.manager.Start()
		}, loses: loses},
		{name: "a worker is killed, and comes back at once", do: func(m *member) {
			m.Kill()
			m.Start()
		}},
	}
}

// TestW5_NeverTwice runs rounds of faults, each of which affects one worker. The
// worker must have stopped its tasks before the manager starts them elsewhere. After
// each round every task must run again, once, and spread evenly.
func TestW5_NeverTwice(t *testing.T) {
	t.Parallel() // it mostly waits
	const tasks = 40
	s := settings{Lease: 1500 * time.Millisecond, Stop: 100 * time.Millisecond, Interval: 100 * time.Millisecond}
	f := startFleet(t, 4, s)
	f.put(forever, names("long", tasks)...)
	f.Wait("all tasks run", time.Minute, func() bool { return f.settled(tasks) })

	random := rand.New(rand.NewPCG(*seed, 0))
	faults := f.faults()
	var toStop, toMove []time.Duration
	for round, i := range proctest.Draw(random, *rounds, len(faults)) {
		fault := faults[i]
		victim := f.workers[random.IntN(len(f.workers))]
		t.Logf("round %d: %s: %s", round, victim.name, fault.name)
		before := f.of(victim.name)
		cut := proctest.Now()
		fault.do(victim)
		if fault.loses != keeps {
			f.Wait("its tasks run elsewhere", 6*s.Lease, func() bool { return f.elsewhere(before, victim.name) })
			if fault.loses == loses {
				toMove = append(toMove, time.Duration(proctest.Now()-cut))
				for _, r := range before {
					toStop = append(toStop, time.Duration(r.To-cut))
				}
			}
		} else {
			f.until(cut, s.Lease*3/2)
		}
		if fault.undo != nil {
			fault.undo(victim)
		}
		victim.up.Heal()
		victim.down.Heal()
		f.Restart()
		f.Wait("all tasks run again", 10*s.Lease, func() bool { return f.settled(tasks) })
		require.Empty(t, f.History.Overlaps(), "round %d: %s: %s\n%s", round, victim.name, fault.name, f.Logs())
	}
	t.Logf("%d rounds, %d runs of %d tasks, none twice at the same time; %d last resorts",
		*rounds, len(f.History.Runs()), tasks, f.Count(lastResort))
	proctest.Report(t, "a worker cut off to its tasks stopped, of a lease of "+s.Lease.String(), toStop)
	proctest.Report(t, "from cutting off a worker until all its tasks run elsewhere", toMove)
}
