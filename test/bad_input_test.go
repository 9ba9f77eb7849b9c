package test

// T15: invalid options, expectations and names, and a Communicator that panics.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator"
)

func TestT15_BadInput_Options(t *testing.T) {
	comm := communicator.Func[string, string]{}
	for _, test := range []struct {
		name string
		opt  option
		text []string // what the error names
	}{
		{"timeout 0", orchestrator.WithCommunicatorTimeout(0), []string{"WithCommunicatorTimeout", "0s"}},
		{"timeout below 0", orchestrator.WithCommunicatorTimeout(-time.Second), []string{"WithCommunicatorTimeout", "-1s"}},
		{"timeout without end", orchestrator.WithCommunicatorTimeout(math.MaxInt64), []string{"WithCommunicatorTimeout", "2562047h"}},
		{"concurrency 0", orchestrator.WithConcurrency(0), []string{"WithConcurrency", "0"}},
		{"concurrency below 0", orchestrator.WithConcurrency(-3), []string{"WithConcurrency", "-3"}},
		{"grace below 0", orchestrator.WithGracePeriod(-time.Second), []string{"WithGracePeriod", "-1s"}},
		{"max loss below 0", orchestrator.WithMaxLoss(-0.1), []string{"WithMaxLoss", "-0.1"}},
		{"max loss above 1", orchestrator.WithMaxLoss(1.5), []string{"WithMaxLoss", "1.5"}},
		{"max loss NaN", orchestrator.WithMaxLoss(math.NaN()), []string{"WithMaxLoss", "NaN"}},
		{"max loss infinite", orchestrator.WithMaxLoss(math.Inf(1)), []string{"WithMaxLoss", "+Inf"}},
		{"moves below 0", orchestrator.WithMaxMoves(-1), []string{"WithMaxMoves", "-1"}},
		{"settle below 0", orchestrator.WithSettle(-time.Second), []string{"WithSettle", "-1s"}},
		{"settle without end", orchestrator.WithSettle(math.MaxInt64), []string{"WithSettle", "2562047h"}},
		{"initial wait below 0", orchestrator.WithInitialWait(-time.Second), []string{"WithInitialWait", "-1s"}},
		{"initial wait above an hour", orchestrator.WithInitialWait(time.Hour + 1), []string{"WithInitialWait", "1h0m0.000000001s"}},
		{"pause 0", orchestrator.WithMaxPause(0), []string{"WithMaxPause", "0s"}},
		{"pause below 0", orchestrator.WithMaxPause(-time.Second), []string{"WithMaxPause", "-1s"}},
		{"pause above a day", orchestrator.WithMaxPause(24*time.Hour + 1), []string{"WithMaxPause", "24h0m0.000000001s"}},
		{"handoff unknown", orchestrator.WithHandoff(7), []string{"WithHandoff", "7"}},
		{"no stats function", orchestrator.WithStats(nil), []string{"WithStats", "nil"}},
		{"no option", nil, []string{"Option", "nil"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, err := orchestrator.New(comm, test.opt)
			require.Nil(t, o)
			require.ErrorIs(t, err, orchestrator.ErrInvalid)
			for _, text := range test.text {
				require.ErrorContains(t, err, text)
			}
		})
	}
}

func TestT15_BadInput_EveryBadOptionIsNamed(t *testing.T) {
	opts := []orchestrator.Option{orchestrator.WithConcurrency(-4), orchestrator.WithMaxMoves(3), orchestrator.WithMaxLoss(2)}
	_, err := orchestrator.New(communicator.Func[string, string]{}, opts...)
	require.ErrorContains(t, err, "WithConcurrency(-4)")
	require.ErrorContains(t, err, "WithMaxLoss(2)")
	require.NotContains(t, err.Error(), "WithMaxMoves")
	require.EqualError(t, orchestrator.CheckOptions(opts...), err.Error())
	require.NoError(t, orchestrator.CheckOptions(orchestrator.WithMaxMoves(3)))
}

func TestT15_BadInput_LimitsThatAreAllowed(t *testing.T) {
	_, err := orchestrator.New(communicator.Func[string, string]{},
		orchestrator.WithCommunicatorTimeout(1), orchestrator.WithConcurrency(1), orchestrator.WithGracePeriod(0),
		orchestrator.WithMaxLoss(0), orchestrator.WithMaxLoss(1), orchestrator.WithMaxMoves(0), orchestrator.WithSettle(0),
		orchestrator.WithInitialWait(0), orchestrator.WithInitialWait(time.Hour),
		orchestrator.WithMaxPause(1), orchestrator.WithMaxPause(24*time.Hour), orchestrator.WithSeed(0), orchestrator.WithDryRun(),
		orchestrator.WithEpoch(0), orchestrator.WithHandoff(orchestrator.HandoffDefault), hold,
		orchestrator.WithLogger(slog.New(slog.DiscardHandler)), orchestrator.WithStats(func(orchestrator.TermStats) {}))
	require.NoError(t, err)
}

func TestT15_BadInput_NoCommunicator(t *testing.T) {
	_, err := orchestrator.New[string, string](nil)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	require.ErrorContains(t, err, "Communicator is nil")
}

// Each is an error that names the field and the value, and changes nothing.
func TestT15_BadInput_Expectations(t *testing.T) {
	type leader = orchestrator.Orchestrator[string, string]
	for _, test := range []struct {
		name string
		call func(*leader) error
		text []string
	}{
		{
			"instances below 0", func(o *leader) error { return o.AddTask("t1", orchestrator.WithTaskInstances(-2)) },
			[]string{"t1", "WithTaskInstances(-2)", "RemoveTask"},
		},
		{
			"instances beyond all bounds", func(o *leader) error { return o.AddTask("t1", orchestrator.WithTaskInstances(math.MaxInt)) },
			[]string{"t1", "WithTaskInstances(9223372036854775807)"},
		},
		{"handoff unknown", func(o *leader) error { return o.AddTask("bad", orchestrator.WithHandoff(9)) }, []string{"bad", "WithHandoff", "9"}},
		{"no task option", func(o *leader) error { return o.AddTask("bad", nil) }, []string{"bad", "nil"}},
		{"no worker option", func(o *leader) error { return o.AddWorker("bad", nil) }, []string{"bad", "nil"}},
		{"UpdateTasks, a name twice", func(o *leader) error {
			return o.UpdateTasks([]task{{Name: "a"}, {Name: "twin"}, {Name: "b"}, {Name: "twin", Instances: 2}})
		}, []string{"twin", "twice", "1", "3"}},
		{"UpdateTasks, instances below 0", func(o *leader) error {
			return o.UpdateTasks([]task{{Name: "a"}, {Name: "bad", Instances: -2}})
		}, []string{"bad", "Instances", "-2"}},
		{"UpdateTasks, handoff unknown", func(o *leader) error {
			return o.UpdateTasks([]task{{Name: "a"}, {Name: "bad", Handoff: 200}})
		}, []string{"bad", "handoff", "200"}},
		{"UpdateWorkers, a name twice", func(o *leader) error {
			return o.UpdateWorkers([]member{{Name: "twin"}, {Name: "w1"}, {Name: "twin", Draining: true}})
		}, []string{"twin", "twice", "0", "2"}},
		{"drain an unknown worker", func(o *leader) error { return o.DrainWorker("stranger") }, []string{"unknown worker", "stranger"}},
		{"undrain an unknown worker", func(o *leader) error { return o.UndrainWorker("stranger") }, []string{"unknown worker", "stranger"}},
	} {
		t.Run(test.name, bubble(given{workers: 2, running: 4}, func(t *testing.T, f *fleet) {
			before := f.ListExpectedTasks()

			err := test.call(f.Orchestrator)
			require.Error(t, err)
			require.True(t, errors.Is(err, orchestrator.ErrInvalid) || errors.Is(err, orchestrator.ErrUnknownWorker), "%v", err)
			for _, text := range test.text {
				require.ErrorContains(t, err, text)
			}
			require.Equal(t, before, f.ListExpectedTasks())
			f.requireSettled()
			require.Len(t, f.LastActual(), 2)
			require.Zero(t, f.LastPlan().Stats.Workers.Draining)
		}))
	}
}

// A name that does not equal itself could be added, but never be found again.
func TestT15_BadInput_NameNotEqualToItself(t *testing.T) {
	o, err := orchestrator.New(communicator.Func[float64, float64]{})
	require.NoError(t, err)
	for _, err := range []error{
		o.AddTask(math.NaN()),
		o.AddWorker(math.NaN()),
		o.UpdateTasks([]orchestrator.Task[float64]{{Name: math.NaN()}}),
		o.UpdateWorkers([]orchestrator.Worker[float64]{{Name: math.NaN()}}),
	} {
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		require.ErrorContains(t, err, "NaN")
	}
}

// A Communicator that panics, or ends its goroutine, fails that call and no
// other.
func TestT15_BadInput_CommunicatorPanics(t *testing.T) {
	for _, op := range []orchestrator.Op{orchestrator.OpList, orchestrator.OpAdd, orchestrator.OpRemove, orchestrator.OpApply} {
		for _, exit := range []bool{false, true} {
			t.Run(fmt.Sprint(op, map[bool]string{false: " panics", true: " ends its goroutine"}[exit]), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(t, given{
						workers: 3, running: 6, applier: op == orchestrator.OpApply, opts: options{orchestrator.WithConcurrency(2)},
					})
					require.NoError(t, f.UpdateTasks([]task{{Name: "t1"}, {Name: "t2"}, {Name: "t3"}, {Name: "n4"}, {Name: "n5"}, {Name: "n6"}}))
					victim := f.Running("t6")[0]
					var once sync.Once
					f.intercept(func(_ context.Context, c call) error {
						if c.Worker == victim && (c.Op == op || op == orchestrator.OpApply && c.Op != orchestrator.OpList) {
							once.Do(func() {
								if exit {
									runtime.Goexit()
								}
								panic("a bug in the transport")
							})
						}
						return nil
					})
					d, err := f.timedTerm()
					require.Zero(t, d)
					found := failures(t, err)
					require.NotEmpty(t, found)
					for _, e := range found {
						require.Equal(t, victim, e.Worker)
					}
					stats := f.LastPlan().Stats
					counted := map[orchestrator.Op]int{
						orchestrator.OpList: stats.List.Failed, orchestrator.OpAdd: stats.Add.Failed,
						orchestrator.OpRemove: stats.Remove.Failed, orchestrator.OpApply: stats.Apply.Failed,
					}
					require.Equal(t, 1, counted[op], "counted as a failed call")
					if !exit {
						require.ErrorContains(t, err, "a bug in the transport")
						lines := f.log.lines(`"level":"ERROR"`, "a bug in the transport", `"worker":"`+victim+`"`, `"op":"`+op.String()+`"`)
						require.Len(t, lines, 1)
						require.Contains(t, lines[0], "TestT15_BadInput_CommunicatorPanics", "the stack")
					}

					f.intercept(nil)
					for range 4 { // what failed is tried again after a moment
						_ = f.NextTerm(t.Context())
						synctest.Wait()
					}
					f.requireSettled()
				})
			})
		}
	}
}

// badNames are names of an interface type that cannot be compared, or are not
// equal to themselves.
func badNames() map[string]any {
	return map[string]any{
		"slice":           []int{1},
		"slice in struct": struct{ V any }{[]int{1}},
		"NaN":             math.NaN(),
		"NaN in struct":   struct{ V any }{math.NaN()},
	}
}

// Methods return an error for such a name, or ignore it. The Orchestrator remains usable.
func TestT15_BadInput_NamesThatCannotBeCompared(t *testing.T) {
	type leader = orchestrator.Orchestrator[any, any]
	for name, bad := range badNames() {
		for method, call := range map[string]func(*leader) error{
			"AddTask":       func(o *leader) error { return o.AddTask(bad) },
			"AddWorker":     func(o *leader) error { return o.AddWorker(bad) },
			"DrainWorker":   func(o *leader) error { return o.DrainWorker(bad) },
			"UndrainWorker": func(o *leader) error { return o.UndrainWorker(bad) },
			"UpdateTasks":   func(o *leader) error { return o.UpdateTasks([]orchestrator.Task[any]{{Name: "a"}, {Name: bad}}) },
			"UpdateWorkers": func(o *leader) error { return o.UpdateWorkers([]orchestrator.Worker[any]{{Name: "w"}, {Name: bad}}) },
			"RemoveTask":    func(o *leader) error { o.RemoveTask(bad); return orchestrator.ErrInvalid },
			"RemoveWorker":  func(o *leader) error { o.RemoveWorker(bad); return orchestrator.ErrInvalid },
		} {
			t.Run(name+"/"+method, func(t *testing.T) {
				o, err := orchestrator.New(communicator.Func[any, any]{})
				require.NoError(t, err)
				require.NotPanics(t, func() { err = call(o) })
				require.ErrorIs(t, err, orchestrator.ErrInvalid)
				require.Empty(t, o.ListExpectedTasks())
				require.NoError(t, o.NextTerm(t.Context()))
				require.Empty(t, o.LastActual())
			})
		}
	}
}

// An answer with such a name counts as a failed call, even if it arrives after the end of
// the listing.
func TestT15_BadInput_ListedNamesThatCannotBeCompared(t *testing.T) {
	for name, bad := range badNames() {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprint(name, map[bool]string{false: " in time", true: " late"}[late]), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					down, lists := late, map[string][]any{"w1": {"a"}, "w2": {"b", bad}}
					o, err := orchestrator.New(communicator.Func[string, any]{
						ListFunc: func(_ context.Context, w string) ([]any, error) {
							if w == "w2" && down {
								return nil, errBoom
							}
							if w == "w2" && late {
								time.Sleep(time.Second)
							}
							return lists[w], nil
						},
					})
					require.NoError(t, err)
					require.NoError(t, o.AddTask("a"))
					require.NoError(t, o.UpdateWorkers([]member{{Name: "w1"}, {Name: "w2"}}))
					term := func() error {
						err := o.NextTerm(t.Context())
						time.Sleep(2 * time.Second)
						synctest.Wait()
						return err
					}
					if late {
						require.Error(t, term()) // after it, no term waits for w2
						down = false
						require.Error(t, term())
					}
					for range 3 {
						require.ErrorContains(t, term(), "unusable answer")
						require.Equal(t, orchestrator.Silent, o.LastActual()[1].State)
					}
					lists["w2"] = nil
					_ = term()
					require.NoError(t, term())
				})
			})
		}
	}
}
