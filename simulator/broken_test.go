package simulator_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/simulator"
)

type comm = orchestrator.Communicator[string, string]

// layer is a Communicator with methods that can be replaced one by one.
type layer struct {
	comm
	list        func(ctx context.Context, worker string) ([]string, error)
	add, remove func(ctx context.Context, worker, task string) error
}

func (l layer) List(ctx context.Context, worker string) ([]string, error) {
	if l.list != nil {
		return l.list(ctx, worker)
	}
	return l.comm.List(ctx, worker)
}

func (l layer) Add(ctx context.Context, worker, task string) error {
	if l.add != nil {
		return l.add(ctx, worker, task)
	}
	return l.comm.Add(ctx, worker, task)
}

func (l layer) Remove(ctx context.Context, worker, task string) error {
	if l.remove != nil {
		return l.remove(ctx, worker, task)
	}
	return l.comm.Remove(ctx, worker, task)
}

// broken lists Communicators that are broken on purpose, with the invariants that
// find each.
var broken = []struct {
	name string
	make func(next comm) layer
	want []simulator.Invariant
}{
	{
		"Add returns nil without an effect",
		func(comm) layer {
			return layer{add: func(context.Context, string, string) error { return nil }}
		},
		[]simulator.Invariant{simulator.Converged, simulator.Live},
	},
	{
		"Remove returns nil without an effect",
		func(comm) layer {
			return layer{remove: func(context.Context, string, string) error { return nil }}
		},
		[]simulator.Invariant{simulator.Exclusive, simulator.Converged, simulator.Live},
	},
	{
		"Add panics",
		func(comm) layer {
			return layer{add: func(context.Context, string, string) error { panic("out of cheese") }}
		},
		[]simulator.Invariant{simulator.Converged, simulator.Live},
	},
	{
		"Add ends its goroutine",
		func(comm) layer {
			return layer{add: func(context.Context, string, string) error { runtime.Goexit(); return nil }}
		},
		[]simulator.Invariant{simulator.Converged, simulator.Live},
	},
	{
		"a failed Add is reported as refused",
		func(next comm) layer {
			return layer{add: func(ctx context.Context, worker, task string) error {
				err := next.Add(ctx, worker, task)
				if err != nil && !errors.Is(err, orchestrator.ErrDeposed) {
					err = errors.Join(orchestrator.ErrRejected, err)
				}
				return err
			}}
		},
		[]simulator.Invariant{simulator.Exclusive},
	},
	{
		"a failed List is reported as empty",
		func(next comm) layer {
			return layer{list: func(ctx context.Context, worker string) ([]string, error) {
				tasks, err := next.List(ctx, worker)
				if errors.Is(err, orchestrator.ErrDeposed) {
					return nil, err
				}
				return tasks, nil
			}}
		},
		[]simulator.Invariant{simulator.Exclusive},
	},
	{
		"List leaves out the last task",
		func(next comm) layer {
			return layer{list: func(ctx context.Context, worker string) ([]string, error) {
				tasks, err := next.List(ctx, worker)
				return slices.Clone(tasks[:max(len(tasks)-1, 0)]), err
			}}
		},
		[]simulator.Invariant{simulator.Exclusive, simulator.Converged, simulator.Live},
	},
	{
		"every write claims the highest term",
		func(next comm) layer {
			highest := func(ctx context.Context) context.Context {
				term, _ := orchestrator.TermFromContext(ctx)
				return orchestrator.ContextWithTerm(ctx, orchestrator.Term{Epoch: term.Epoch, Number: 1 << 40})
			}
			return layer{
				add:    func(ctx context.Context, w, t string) error { return next.Add(highest(ctx), w, t) },
				remove: func(ctx context.Context, w, t string) error { return next.Remove(highest(ctx), w, t) },
			}
		},
		[]simulator.Invariant{simulator.Authorized, simulator.Exclusive, simulator.Converged, simulator.Live},
	},
	{
		"the term is lost on the way",
		func(next comm) layer {
			bare := func(ctx context.Context) context.Context {
				return orchestrator.ContextWithTerm(ctx, orchestrator.Term{})
			}
			return layer{
				add:    func(ctx context.Context, w, t string) error { return next.Add(bare(ctx), w, t) },
				remove: func(ctx context.Context, w, t string) error { return next.Remove(bare(ctx), w, t) },
			}
		},
		[]simulator.Invariant{simulator.Converged, simulator.Live},
	},
}

// Each is found soon, by an invariant that it breaks.
func TestRun_FindsBrokenCommunicators(t *testing.T) {
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			settings := simulator.Settings{
				Membership: simulator.Leases,
				Handoff:    orchestrator.StopThenStart,
				Without:    []simulator.Event{simulator.FalseLists},
				Wrap: func(next comm) comm {
					l := b.make(next)
					l.comm = next
					return l
				},
			}
			for seed := range uint64(300) {
				_, err := simulator.Run(t, seed, settings)
				if err == nil {
					continue
				}
				var violation *simulator.Violation
				require.ErrorAs(t, err, &violation)
				require.Contains(t, b.want, violation.Invariant, "%v", violation)
				require.Equal(t, seed, violation.Seed)
				t.Log(violation)
				return
			}
			require.Fail(t, "not found")
		})
	}
}
