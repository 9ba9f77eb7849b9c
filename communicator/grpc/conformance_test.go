package grpc

// C1 to C8 with the conformance tests for every Communicator, over real connections.

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/communicator/communicatortest"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/internal/testca"
	"github.com/f8949c05/orchestrator/worker"
)

func TestC_Direct(t *testing.T) {
	t.Parallel()
	communicatortest.Run(t, func(t *testing.T) communicatortest.Cluster[WorkerID, string] {
		return cluster(t, nil, nil)
	})
}

func TestC_ThroughAProxy(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]time.Duration{"at once": 0, "with a delay": 5 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			communicatortest.Run(t, func(t *testing.T) communicatortest.Cluster[WorkerID, string] {
				return cluster(t, &delay, nil)
			})
		})
	}
}

func TestC_OverTLS(t *testing.T) {
	t.Parallel()
	ca := testca.New(t, "ours")
	communicatortest.Run(t, func(t *testing.T) communicatortest.Cluster[WorkerID, string] {
		return cluster(t, nil, ca)
	})
}

func TestC_OverTLSThroughAProxy(t *testing.T) {
	t.Parallel()
	ca, delay := testca.New(t, "ours"), 2*time.Millisecond
	communicatortest.Run(t, func(t *testing.T) communicatortest.Cluster[WorkerID, string] {
		return cluster(t, &delay, ca)
	})
}

// cluster returns two workers and a Communicator, with or without a delaying proxy
// before each worker, with or without TLS.
func cluster(t *testing.T, delay *time.Duration, ca *testca.CA) communicatortest.Cluster[WorkerID, string] {
	var ours []CommunicatorOption
	if ca != nil {
		ours = append(ours, with(t, ca.Manager(t)))
	}
	c := communicator(t, ours...)
	workers, cuts, addresses := map[string]*servedWorker{}, map[string]func() func(){}, map[string]string{}
	var jobs pins
	all := communicatortest.Cluster[WorkerID, string]{
		Communicator: c,
		Timeout:      3 * time.Second,
		Tasks:        []string{"a", "b/c", "\xff\x00 größe"},
		Hold:         func(w WorkerID) func() { g := workers[w.Name].gate; return g.Hold(&g.Some) },
		Cut:          func(w WorkerID) func() { return cuts[w.Name]() },
		Linger:       func(w WorkerID, task string) func() { return workers[w.Name].tasks.Lingers(task) },
		Refuse:       func(w WorkerID, task string) func() { return workers[w.Name].tasks.Refuse(task) },
		Pin:          func(w WorkerID, task string) func() { return jobs.pin(w.Name, task) },
		Restart: func(w WorkerID) WorkerID {
			s := workers[w.Name]
			require.NoError(t, s.worker.Rejoin(t.Context()))
			successor := s.as(w.Name)
			introduce(t, c, successor, addresses[w.Name])
			return successor
		},
	}
	for _, name := range []string{"w1", "w2"} {
		var theirs []Option
		if ca != nil {
			theirs = append(theirs, with(t, ca.Worker(t, name)))
		}
		s := newServed(t, func(ctx context.Context, task string) { jobs.await(ctx, name, task) }, theirs...)
		address := s.addr
		cuts[name] = func() func() { return s.gate.Hold(&s.gate.All) }
		if delay != nil {
			p := behind(t, address)
			p.Delay(netfault.Both, *delay)
			address = p.Addr()
			cuts[name] = func() func() { p.Cut(netfault.Both); return p.Heal }
		}
		workers[name], addresses[name] = s, address
		w := s.as(name)
		introduce(t, c, w, address)
		all.Workers = append(all.Workers, w)
	}
	// Three unreachable workers: an unknown one, an earlier incarnation, and one at a
	// wrong address.
	former, away := all.Workers[0], WorkerID{"away", 1}
	former.Incarnation++
	introduce(t, c, former, workers["w1"].addr)
	introduce(t, c, away, "127.0.0.1:1")
	all.UnknownWorkers = []WorkerID{{Name: "nobody", Incarnation: 1}, former, away}
	return all
}

// pins holds the jobs that must not be moved.
type pins struct {
	mu sync.Mutex
	of map[[2]string]chan struct{} // by worker and task; closed by unpin
}

func (p *pins) pin(worker, task string) (unpin func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pinned := make(chan struct{})
	p.of = map[[2]string]chan struct{}{{worker, task}: pinned}
	return func() { close(pinned) }
}

// await waits until a task is to stop, and lets it move unless it is pinned.
func (p *pins) await(ctx context.Context, name, task string) {
	p.mu.Lock()
	pinned := p.of[[2]string{name, task}]
	p.mu.Unlock()
	if pinned == nil {
		worker.Movable(ctx)
	}
	select {
	case <-pinned:
		worker.Movable(ctx)
		<-ctx.Done()
	case <-ctx.Done():
	}
}
