package test

// Plan: what the next term would do under a hypothesis, and plans as text and JSON.

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

type hypothesis = orchestrator.Hypothesis[string, string]

// plan returns the Plan of a hypothesis.
func (f *fleet) plan(h hypothesis) plan {
	f.t.Helper()
	p, err := f.Plan(h)
	require.NoError(f.t, err)
	return p
}

// stripped returns changes without their outcomes.
func stripped(changes []change) []change {
	plain := make([]change, len(changes))
	for i, c := range changes {
		plain[i] = change{Kind: c.Kind, Task: c.Task, From: c.From, To: c.To, Was: c.Was}
	}
	return plain
}

// whatIf is a situation, a hypothesis, and how it comes true. Each part may be nil.
type whatIf struct {
	prepare  func(*fleet)
	suppose  hypothesis
	comeTrue func(*fleet)
	opts     options
}

var whatIfs = map[string]whatIf{
	// The zero hypothesis: the next term as things stand.
	"nothing changes":       {},
	"a worker was added":    {prepare: func(f *fleet) { f.join("w5") }},
	"a worker was removed":  {prepare: func(f *fleet) { f.Kill("w1"); f.RemoveWorker("w1") }},
	"a worker was replaced": {prepare: func(f *fleet) { f.RemoveWorker("w1"); f.join("w1") }},
	"a worker drains":       {prepare: func(f *fleet) { _ = f.DrainWorker("w2") }},
	"tasks came and went": {
		prepare: func(f *fleet) {
			f.RemoveTask("t1")
			_ = f.AddTask("t2", orchestrator.WithTaskInstances(3))
			_ = f.AddTask("new")
		},
	},
	"a worker is silent": {prepare: func(f *fleet) { f.Cut("w2"); f.anyTerm(); f.RemoveTask("t1"); _ = f.AddTask("new") }},
	"a worker has been silent for long": {
		prepare: func(f *fleet) {
			f.Cut("w2")
			f.anyTerm()
			f.anyTerm()
			synctest.Wait() // its call has failed
			time.Sleep(time.Hour)
		},
	},
	"a worker is lost":        {prepare: func(f *fleet) { f.Cut("w2"); time.Sleep(time.Hour); f.anyTerm(); f.join("w5") }},
	"most workers are silent": {prepare: func(f *fleet) { f.Cut("w1", "w2", "w3"); time.Sleep(time.Hour); f.anyTerm() }},
	"most workers are silent for longer than a mass loss may last": {
		prepare: func(f *fleet) {
			f.Cut("w1", "w2", "w3")
			f.anyTerm()
			time.Sleep(time.Hour)
			f.anyTerm() // in which their answers may still be on their way
			synctest.Wait()
		},
	},
	"a mass loss ends": {
		prepare: func(f *fleet) {
			f.Cut("w1", "w2", "w3")
			f.anyTerm()
			time.Sleep(time.Minute)
			f.Heal("w1", "w2")
			for range 3 {
				f.anyTerm()
				synctest.Wait() // for answers that the term did not wait for
				time.Sleep(time.Second)
			}
		},
	},
	"a worker was late": {
		prepare: func(f *fleet) {
			f.Slow(5*time.Second, "w2")
			f.anyTerm()
			f.RemoveTask("t1")
			_ = f.DrainWorker("w1")
			f.Slow(0, "w2")
			time.Sleep(timeout)
		},
	},
	"an initial worker has not answered": {prepare: func(f *fleet) { *f = *f.successor(); f.Cut("w2"); f.anyTerm(); f.expect(30) }},
	"a start may have happened on a silent worker": {
		prepare: func(f *fleet) {
			f.intercept(on(orchestrator.OpAdd, "w2", "", fails(errBoom)))
			f.expect(30)
			f.anyTerm()
			f.Cut("w2")
			f.anyTerm()
			time.Sleep(time.Second)
		},
	},
	"a start pauses": {prepare: func(f *fleet) { f.failAdds(errRejected, "w2"); f.expect(30); f.anyTerm() }},
	"a worker is quarantined": {
		prepare: func(f *fleet) { f.Start("w2"); f.quarantine("w2"); f.expect(30) },
		opts:    options{orchestrator.WithMaxMoves(0)},
	},
	"a quarantine is forgotten": {
		prepare: func(f *fleet) {
			f.Start("w2")
			f.quarantine("w2")
			f.Refuse(nil)
			until := f.paused(orchestrator.PauseWorker)[0].Until
			for f.termNumber() < until+64 { // no start is tried
				f.anyTerm()
			}
			f.expect(30)
		},
		opts: options{orchestrator.WithMaxMoves(0)},
	},
	"a worker awaits its trial": {prepare: func(f *fleet) { f.Start("w2"); f.quarantine("w2"); f.anyTerm() }},
	"a task is suspect":         {prepare: func(f *fleet) { f.refusePoison(); _ = f.AddTask("poison"); f.anyTerm(); f.anyTerm() }},
	"a suspect has its turn":    {prepare: func(f *fleet) { f.refusePoison(); _ = f.AddTask("poison"); f.anyTerm(); f.anyTerm(); f.anyTerm() }},
	"all moves pause":           {prepare: func(f *fleet) { f.failAdds(errRejected); f.join("w5"); f.anyTerm() }},
	"a stop pauses": {
		prepare: func(f *fleet) {
			f.intercept(on(orchestrator.OpRemove, "", "", fails(errBoom)))
			_ = f.DrainWorker("w1")
			f.anyTerm()
		},
	},
	"a stop is under way": {
		prepare: func(f *fleet) {
			f.intercept(on(orchestrator.OpRemove, "", "", fails(orchestrator.ErrStopping)))
			_ = f.DrainWorker("w1")
			f.anyTerm()
			time.Sleep(time.Minute)
			f.anyTerm()
		},
		opts: options{orchestrator.WithMaxMoves(2)},
	},
	"moves are limited": {
		prepare: func(f *fleet) { f.join("w5"); _ = f.DrainWorker("w1"); f.anyTerm() },
		opts:    options{orchestrator.WithMaxMoves(2)},
	},
	"ties are drawn": {prepare: func(f *fleet) { f.expect(21); f.join("w5", "w6") }, opts: options{orchestrator.WithSeed(7)}},

	// What h supposes.
	"drain":     {suppose: hypothesis{Drain: []string{"w2", "w3"}}, comeTrue: func(f *fleet) { _ = f.DrainWorker("w2"); _ = f.DrainWorker("w3") }},
	"drain all": {suppose: hypothesis{Drain: names("w", 4)}, comeTrue: func(f *fleet) { _ = f.UpdateWorkers(draining(f.workers)) }},
	"undrain": {
		prepare:  func(f *fleet) { _ = f.DrainWorker("w2"); f.anyTerm() },
		suppose:  hypothesis{Undrain: []string{"w2"}},
		comeTrue: func(f *fleet) { _ = f.UndrainWorker("w2") },
	},
	"undrain one that was added draining": {
		prepare:  func(f *fleet) { _ = f.AddWorker("w2", orchestrator.WithWorkerDraining()); f.anyTerm() },
		suppose:  hypothesis{Undrain: []string{"w2"}},
		comeTrue: func(f *fleet) { _ = f.UndrainWorker("w2") },
	},
	"redefine one that was added draining, and undrain it": {
		prepare:  func(f *fleet) { _ = f.AddWorker("w2", orchestrator.WithWorkerDraining()); f.anyTerm() },
		suppose:  hypothesis{AddWorkers: []member{{Name: "w2"}}, Undrain: []string{"w2"}},
		comeTrue: func(f *fleet) { _ = f.AddWorker("w2"); _ = f.UndrainWorker("w2") },
	},
	"silence": {prepare: func(f *fleet) { f.expect(30) }, suppose: hypothesis{Silence: []string{"w2"}}, comeTrue: func(f *fleet) { f.Cut("w2") }},
	"silence without a grace period": {
		prepare:  func(f *fleet) { f.expect(30) },
		suppose:  hypothesis{Silence: []string{"w2"}},
		comeTrue: func(f *fleet) { f.Cut("w2") },
		opts:     options{orchestrator.WithGracePeriod(0)},
	},
	"silence for longer than the grace period": {
		prepare:  func(f *fleet) { f.expect(30); time.Sleep(time.Hour) },
		suppose:  hypothesis{Silence: []string{"w2"}},
		comeTrue: func(f *fleet) { f.Cut("w2") },
	},
	"silence of most workers": {
		suppose:  hypothesis{Silence: []string{"w1", "w2", "w3"}, AddTasks: []task{{Name: "new"}}},
		comeTrue: func(f *fleet) { f.Cut("w1", "w2", "w3"); _ = f.AddTask("new") },
	},
	"lose": {suppose: hypothesis{Lose: []string{"w2"}}, comeTrue: func(f *fleet) { f.Kill("w2"); f.RemoveWorker("w2") }},
	"lose most workers": {
		suppose:  hypothesis{Lose: []string{"w1", "w2", "w3"}},
		comeTrue: func(f *fleet) { f.Kill("w1", "w2", "w3"); _ = f.UpdateWorkers([]member{{Name: "w4"}}) },
	},
	"lose a silent worker": {
		prepare:  func(f *fleet) { f.Cut("w2"); f.anyTerm() },
		suppose:  hypothesis{Lose: []string{"w2"}},
		comeTrue: func(f *fleet) { f.RemoveWorker("w2") },
		opts:     options{hold},
	},
	"add workers": {
		suppose: hypothesis{AddWorkers: []member{{Name: "w5"}, {Name: "w6"}, {Name: "w1", Draining: true}}},
		comeTrue: func(f *fleet) {
			f.join("w5", "w6")
			_ = f.AddWorker("w1", orchestrator.WithWorkerDraining())
		},
	},
	"add a worker that is draining, and drain another one": {
		suppose:  hypothesis{AddWorkers: []member{{Name: "w5", Draining: true}, {Name: "w6"}}, Drain: []string{"w1"}},
		comeTrue: func(f *fleet) { f.join("w5", "w6"); _ = f.DrainWorker("w5"); _ = f.DrainWorker("w1") },
	},
	"add and remove tasks": {
		suppose: hypothesis{
			AddTasks:    []task{{Name: "new"}, {Name: "t2", Instances: 3}, {Name: "t3", Handoff: orchestrator.StartThenStop}},
			RemoveTasks: []string{"t1", "t4", "never added"},
			Drain:       []string{"w1"},
		},
		comeTrue: func(f *fleet) {
			f.RemoveTask("t1")
			f.RemoveTask("t4")
			_ = f.AddTask("new")
			_ = f.AddTask("t2", orchestrator.WithTaskInstances(3))
			_ = f.AddTask("t3", orchestrator.WithHandoff(orchestrator.StartThenStop))
			_ = f.DrainWorker("w1")
		},
	},
	"remove a suspect": {
		prepare:  func(f *fleet) { f.refusePoison(); _ = f.AddTask("poison"); f.anyTerm(); f.anyTerm() },
		suppose:  hypothesis{RemoveTasks: []string{"poison"}, AddWorkers: []member{{Name: "w5"}}},
		comeTrue: func(f *fleet) { f.RemoveTask("poison"); f.join("w5") },
	},
	"remove all": {suppose: hypothesis{RemoveTasks: names("t", 18)}, comeTrue: func(f *fleet) { _ = f.UpdateTasks(nil) }},
}

// draining returns workers that drain.
func draining(names []string) (all []member) {
	for _, name := range names {
		all = append(all, member{Name: name, Draining: true})
	}
	return all
}

// If the hypothesis comes true, the next term does what Plan returned.
func TestD16_PlanAgreesWithTheNextTerm(t *testing.T) {
	for name, w := range whatIfs {
		t.Run(name, bothWires(given{workers: 4, running: 18, opts: w.opts}, func(t *testing.T, f *fleet) {
			if w.prepare != nil {
				w.prepare(f)
			}
			p := f.plan(w.suppose)
			require.Equal(t, p.Changes, f.plan(w.suppose).Changes, "the same again")
			if w.comeTrue != nil {
				w.comeTrue(f)
			}
			f.anyTerm()
			done := f.LastPlan()
			require.Equal(t, stripped(done.Changes), stripped(p.Changes))
			require.Equal(t, plannedWaiting(done), plannedWaiting(p))
			require.Equal(t, done.Stats.Term, p.Stats.Term)
			require.Equal(t, done.Stats.Changes, p.Stats.Changes)
			require.Equal(t, done.Stats.Adds, p.Stats.Adds)
			require.Equal(t, done.Stats.LowerBound, p.Stats.LowerBound)
			require.Equal(t, done.Stats.Deferred, p.Stats.Deferred)
			require.Equal(t, done.Stats.MassLoss, p.Stats.MassLoss)
			require.Equal(t, done.Stats.Instances.Wanted, p.Stats.Instances.Wanted)
			require.Equal(t, done.Stats.Instances.Held, p.Stats.Instances.Held)
			require.Equal(t, done.Stats.Instances.Unplaceable, p.Stats.Instances.Unplaceable)
			rows := make(map[string]orchestrator.WorkerPlan[string])
			for _, row := range p.Workers {
				rows[row.Name] = row
			}
			for _, row := range done.Workers {
				planned := rows[row.Name]
				row.Quarantined, planned.Quarantined = false, false // learned in the term
				require.Equal(t, row, planned)
			}
		}))
	}
}

// plannedWaiting returns the instances that wait for another reason than the outcome of a
// change.
func plannedWaiting(p plan) []waiting {
	return filter(p.Waiting, func(w waiting) bool {
		return w.Reason != orchestrator.ReasonFailed && w.Reason != orchestrator.ReasonSkipped
	})
}

var clusters = flag.Uint64("clusters", 10, "number of random clusters, each with twenty hypotheses, in TestD16_RandomClusters")

// TestD16_RandomClusters lets hypotheses about random clusters come true, with silent,
// draining and quarantined workers, refused starts and workers that restart empty.
func TestD16_RandomClusters(t *testing.T) {
	compared := 0
	for seed := range *clusters {
		onBothWires(t, given{workers: 6, opts: options{orchestrator.WithGracePeriod(5 * time.Second)}}, func(t *testing.T, f *fleet) {
			r := rand.New(rand.NewPCG(seed, 16))
			for i, name := range names("t", 20) {
				require.NoError(t, f.AddTask(name, orchestrator.WithTaskInstances(1+i%3)))
			}
			cut := make(map[string]bool)
			f.term()
			for range 20 {
				time.Sleep(time.Second)
				name := f.workers[r.IntN(len(f.workers))]
				switch r.IntN(6) {
				case 0:
					f.failAdds(errRejected, name)
				case 1:
					f.Refuse(nil)
				case 2:
					f.Heal()
					clear(cut)
				case 3:
					f.RemoveTask(fmt.Sprint("t", 1+r.IntN(20)))
				case 4:
					require.NoError(t, f.AddTask(fmt.Sprint("t", 1+r.IntN(20)), orchestrator.WithTaskInstances(1+r.IntN(3))))
				}
				_ = f.NextTerm(t.Context()) // so that Plan knows who answers
				synctest.Wait()
				_ = f.NextTerm(t.Context())
				var h hypothesis
				for _, name := range f.workers {
					switch {
					case r.IntN(10) == 0:
						h.Drain = append(h.Drain, name)
					case r.IntN(10) == 0:
						h.Undrain = append(h.Undrain, name)
					case r.IntN(10) == 0 && !cut[name]:
						h.Silence = append(h.Silence, name)
					}
				}
				if !f.listsWhatItAcknowledged(cut) {
					continue
				}
				p := f.plan(h)
				for _, name := range h.Drain {
					require.NoError(t, f.DrainWorker(name))
				}
				for _, name := range h.Undrain {
					require.NoError(t, f.UndrainWorker(name))
				}
				for _, name := range h.Silence {
					f.Cut(name)
					cut[name] = true
				}
				_ = f.NextTerm(t.Context())
				require.Equal(t, stripped(f.LastPlan().Changes), stripped(p.Changes))
				require.Equal(t, plannedWaiting(f.LastPlan()), plannedWaiting(p))
				compared += len(p.Changes)
			}
		})
	}
	require.Greater(t, compared, 30*int(*clusters))
}

// listsWhatItAcknowledged reports whether each worker, but for those that are cut off, lists
// its tasks in the order in which the last term left them. Of equal tasks on a worker, the
// plan moves the first.
func (f *fleet) listsWhatItAcknowledged(cut map[string]bool) bool {
	f.t.Helper()
	for _, w := range f.LastActual() {
		if cut[w.Name] {
			continue
		}
		list, err := f.Cluster.List(f.t.Context(), w.Name)
		require.NoError(f.t, err)
		if !slices.Equal(list, w.Tasks) {
			return false
		}
	}
	return true
}

// Plan calls no worker, and changes nothing that can be read.
func TestD17_PlanChangesNothing(t *testing.T) {
	inBubble(t, given{workers: 3, expected: 9}, func(t *testing.T, f *fleet) {
		_, err := f.Plan(hypothesis{})
		require.ErrorIs(t, err, orchestrator.ErrNoTerm)
		require.Nil(t, f.LastActual())
		require.Zero(t, f.LastPlan())
		f.term()

		f.refusePoison()
		require.NoError(t, f.AddTask("poison"))
		f.anyTerm()
		f.anyTerm()
		actual, last, tasks := f.LastActual(), f.LastPlan(), f.ListExpectedTasks()
		f.forget()
		for name, w := range whatIfs {
			if w.prepare == nil || name == "undrain" || name == "undrain one that was added draining" {
				p := f.plan(hypothesis{AddWorkers: append(slices.Clone(w.suppose.AddWorkers), member{Name: "w4"})})
				require.NotEmpty(t, p.Changes)
				h := w.suppose
				h.AddWorkers = append(slices.Clone(h.AddWorkers), member{Name: "w4"})
				f.plan(h)
			}
		}
		require.Equal(t, actual, f.LastActual())
		require.Equal(t, last, f.LastPlan())
		require.Equal(t, tasks, f.ListExpectedTasks())
		require.Len(t, f.terms.all(), 3)
		require.Empty(t, f.writes())
		require.Empty(t, f.lists())

		f.term()
		require.Equal(t, last.Stats.Term.Number+1, f.termNumber(), "a Plan is no term")
		require.Empty(t, f.LastPlan().Changes)
	})
}

// Plan does not wait for a term under way, and starts from the previous one.
func TestPlan_DoesNotWaitForATerm(t *testing.T) {
	for _, blocked := range []orchestrator.Op{orchestrator.OpList, orchestrator.OpAdd} {
		t.Run(blocked.String(), bubble(given{workers: 2, running: 2}, func(t *testing.T, f *fleet) {
			f.expect(4)
			before := f.plan(hypothesis{})
			f.intercept(on(blocked, "", "", hang))
			done := f.beginTerm()
			calls := len(f.calls(func(call) bool { return true }))
			var p plan
			require.Zero(t, took(func() { p = f.plan(hypothesis{}) }))
			require.Empty(t, done, "the term is under way")
			require.Equal(t, before.Changes, p.Changes)
			require.Len(t, f.calls(func(call) bool { return true }), calls)
			require.Error(t, <-done)
		}))
	}
}

// Plans and terms at the same time, for the race detector.
func TestPlan_DuringTerms(t *testing.T) {
	inBubble(t, given{workers: 4, running: 20}, func(t *testing.T, f *fleet) {
		f.failAdds(errBoom, "w3")
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for k := range 25 {
					_, err := f.Plan(hypothesis{
						Lose: []string{"w1"}, Silence: []string{"w2"}, AddTasks: []task{{Name: fmt.Sprint(i, k)}},
					})
					if err != nil {
						t.Error(err)
					}
					_ = f.AddTask(fmt.Sprint("more", i, k))
				}
			})
		}
		f.anyTerms(25)
		wg.Wait()
		f.Refuse(nil)
		f.untilTerm(40, func() bool { return f.missing() == 0 })
		f.requireAllRun()
	})
}

// A plan has the names of tasks that were replaced since the last term, and of the new ones.
func TestPlan_AfterTasksWereReplaced(t *testing.T) {
	inBubble(t, given{workers: 2}, func(t *testing.T, f *fleet) {
		f.refusePoison()
		require.NoError(t, f.UpdateTasks([]task{{Name: "a"}, {Name: "b"}, {Name: "poison"}}))
		f.anyTerm()
		f.anyTerm()
		require.Len(t, f.paused(orchestrator.PauseTask), 1)
		require.NoError(t, f.UpdateTasks([]task{{Name: "c"}, {Name: "poison"}, {Name: "d"}, {Name: "e"}}))
		p := f.plan(hypothesis{})
		starts, stops := make(map[string]int), make(map[string]int)
		for _, c := range p.Changes {
			if c.Kind.Op == orchestrator.Stop {
				stops[c.Task]++
			} else {
				starts[c.Task]++
			}
		}
		require.Equal(t, map[string]int{"a": 1, "b": 1}, stops)
		require.Equal(t, map[string]int{"c": 1, "d": 1, "e": 1}, starts)
		require.Len(t, p.Paused, 1)
		require.Equal(t, "poison", p.Paused[0].Task)
	})
}

// The failures of removed tasks and workers are forgotten by the next term, not by Plan.
func TestPlan_ForgetsNothing(t *testing.T) {
	for name, test := range map[string]struct{ goes, returns func(*fleet) }{
		"a task": {func(f *fleet) { f.RemoveTask("poison") }, func(f *fleet) { _ = f.AddTask("poison") }},
		"a worker": {
			func(f *fleet) { f.RemoveWorker("w1") },
			nil, // another worker of its name has a clean record
		},
	} {
		t.Run(name, bubble(given{workers: 1}, func(t *testing.T, f *fleet) {
			f.refusePoison()
			f.expect(1)
			require.NoError(t, f.AddTask("poison"))
			f.failingTerm()
			held := f.LastPlan().Paused
			require.Len(t, held, 1)
			test.goes(f)
			require.Empty(t, f.plan(hypothesis{}).Paused)
			require.Equal(t, held, f.LastPlan().Paused)
			if test.returns != nil {
				test.returns(f)
				require.Equal(t, held, f.plan(hypothesis{}).Paused)
			}
		}))
	}
}

func TestPlan_Errors(t *testing.T) {
	inBubble(t, given{workers: 2, running: 2}, func(t *testing.T, f *fleet) {
		for name, h := range map[string]hypothesis{
			"drain":   {Drain: []string{"w1", "w9"}},
			"undrain": {Undrain: []string{"w9"}},
			"silence": {Silence: []string{"w9"}},
			"lose":    {Lose: []string{"w9"}},
		} {
			_, err := f.Plan(h)
			require.ErrorIs(t, err, orchestrator.ErrUnknownWorker, name)
			require.ErrorContains(t, err, "w9", name)
			h.AddWorkers = []member{{Name: "w9"}}
			_, err = f.Plan(h)
			require.NoError(t, err, "%s a worker that is added", name)
		}
		for name, h := range map[string]hypothesis{
			"instances": {AddTasks: []task{{Name: "a", Instances: -2}}},
			"handoff":   {AddTasks: []task{{Name: "a", Handoff: 9}}},
			"twice":     {AddTasks: []task{{Name: "a"}, {Name: "a"}}},
		} {
			_, err := f.Plan(h)
			require.ErrorIs(t, err, orchestrator.ErrInvalid, name)
		}
	})
}

// A name that cannot be compared is invalid in every field.
func TestPlan_InvalidNames(t *testing.T) {
	type hypothesis = orchestrator.Hypothesis[any, any]
	o, err := orchestrator.New(recorder[any, any](nil))
	require.NoError(t, err)
	require.NoError(t, o.NextTerm(t.Context()))
	bad := any([]int{1})
	for name, h := range map[string]hypothesis{
		"Drain":       {Drain: []any{bad}},
		"Undrain":     {Undrain: []any{bad}},
		"Silence":     {Silence: []any{bad}},
		"Lose":        {Lose: []any{bad}},
		"AddWorkers":  {AddWorkers: []orchestrator.Worker[any]{{Name: bad}}},
		"AddTasks":    {AddTasks: []orchestrator.Task[any]{{Name: bad}}},
		"RemoveTasks": {RemoveTasks: []any{bad}},
	} {
		_, err := o.Plan(h)
		require.ErrorIs(t, err, orchestrator.ErrInvalid, name)
	}
}

// Until tasks are loaded, no task stops, and Plan plans no stop.
func TestPlan_BeforeTasksAreLoaded(t *testing.T) {
	inBubble(t, given{workers: 1}, func(t *testing.T, f *fleet) {
		f.run("w1", "a")
		f.term()
		require.Empty(t, f.plan(hypothesis{}).Changes)
		p := f.plan(hypothesis{AddTasks: []task{{Name: "b"}}})
		require.Len(t, p.Changes, 2, "AddTask says that the tasks are loaded")
		require.Empty(t, f.plan(hypothesis{}).Changes)
	})
}

func TestPlan_JSONOfAHypothesis(t *testing.T) {
	inBubble(t, given{workers: 2, running: 2, opts: options{orchestrator.WithEpoch(7)}}, func(t *testing.T, f *fleet) {
		p := f.plan(hypothesis{Drain: []string{"w1"}})
		text, err := json.Marshal(p)
		require.NoError(t, err)
		var got struct {
			Stats struct {
				Term     orchestrator.Term `json:"term"`
				Outcomes map[string]int    `json:"outcomes"`
			} `json:"stats"`
			Changes json.RawMessage `json:"changes"`
			Paused  json.RawMessage `json:"paused"`
			Workers json.RawMessage `json:"workers"`
		}
		require.NoError(t, json.Unmarshal(text, &got))
		require.Equal(t, orchestrator.Term{Epoch: 7, Number: 2}, got.Stats.Term)
		require.Equal(t, map[string]int{"planned": 1}, got.Stats.Outcomes)
		require.JSONEq(t, `[{"op": "move", "reason": "drain", "task": "t1", "from": "w1", "to": "w2", "outcome": "planned"}]`, string(got.Changes))
		require.JSONEq(t, `[]`, string(got.Paused))
		require.JSONEq(t, `[
			{"name": "w1", "state": "answering", "draining": true, "before": 1, "after": 0},
			{"name": "w2", "state": "answering", "before": 1, "after": 2}
		]`, string(got.Workers))
	})
}

// samplePlan returns a plan with an element of every kind.
func samplePlan() plan {
	kind := func(op orchestrator.ChangeOp, r orchestrator.Reason) orchestrator.ChangeKind {
		return orchestrator.ChangeKind{Op: op, Reason: r}
	}
	return plan{
		Stats: orchestrator.TermStats{
			Term:  orchestrator.Term{Epoch: 7, Number: 42},
			Start: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			Changes: map[orchestrator.ChangeKind]int{
				kind(orchestrator.Start, orchestrator.ReasonMissing): 1,
				kind(orchestrator.Move, orchestrator.ReasonDrain):    1,
				kind(orchestrator.Stop, orchestrator.ReasonSurplus):  1,
			},
			Adds: 2, LowerBound: 2, Deferred: 3, MassLoss: true, Err: errBoom,
		},
		Changes: []change{
			{Kind: kind(orchestrator.Start, orchestrator.ReasonMissing), Task: "a", To: "w1", Outcome: orchestrator.OutcomeDone},
			{Kind: kind(orchestrator.Move, orchestrator.ReasonDrain), Task: "bb", From: "w1", To: "w2", Outcome: orchestrator.OutcomeReturned, Err: errBoom},
			{Kind: kind(orchestrator.Stop, orchestrator.ReasonSurplus), Task: "c", From: "w3", Outcome: orchestrator.OutcomeDone},
		},
		Waiting: []waiting{
			{Task: "d", Instances: 2, Reason: orchestrator.ReasonNoWorker},
			{Task: "e", Instances: 1, Reason: orchestrator.ReasonHeld, Worker: "w3", Named: true},
		},
		Paused: []pause{
			{Kind: orchestrator.PauseWorker, Worker: "w4", Until: 44, Failures: 1, Err: errBoom},
			{Kind: orchestrator.PauseTask, Worker: "w1", Task: "g", Until: 48, Failures: 2, Err: errBoom},
			{Kind: orchestrator.PauseStart, Worker: "w4", Task: "f", Until: 50, Failures: 3, Err: errBoom},
			{Kind: orchestrator.PauseStop, Worker: "w5", Task: "h", Until: 43, Failures: 1, Err: errBoom},
			{Kind: orchestrator.PauseMoves, Until: 44, Failures: 1, Err: errBoom},
		},
		Workers: []orchestrator.WorkerPlan[string]{
			{Name: "w1", State: orchestrator.Answering, Draining: true, Before: 5, After: 4},
			{Name: "w3", State: orchestrator.Silent, Before: 2, After: 2},
			{Name: "w4", State: orchestrator.Answering, Quarantined: true},
			{Name: "w2", State: orchestrator.Answering, Late: true, Before: 1, After: 2},
			{Name: "w5", State: orchestrator.Lost},
		},
	}
}

func TestPlan_String(t *testing.T) {
	want := strings.TrimPrefix(`
term 42: 3 changes: 1 move (drain), 1 start (missing), 1 stop (surplus); 2 starts, at least 2 needed; 2 waiting; 3 moves left for later; too many workers silent at once, none declared lost

change  task  from  to  reason   outcome
start   a     -     w1  missing  done
move    bb    w1    w2  drain    returned: boom
stop    c     w3    -   surplus  done

waiting  task  instances  worker  reason
         d     2          -       no open worker
         e     1          w3      held

paused  worker  task  until    times  why
worker  w4      -     term 44  1      boom
task    w1      g     term 48  2      boom
start   w4      f     term 50  3      boom
stop    w5      h     term 43  1      boom
moves   -       -     term 44  1      boom

worker  state                   before  after
w1      answering, draining     5       4
w3      silent                  2       2
w4      answering, quarantined  0       0
w2      answering, late         1       2
w5      lost                    0       0
`, "\n")
	require.Equal(t, want, samplePlan().String())
	require.Equal(t, want, fmt.Sprint(samplePlan()))

	single := samplePlan()
	single.Changes, single.Stats.Adds, single.Stats.Deferred = single.Changes[:1], 1, 1
	require.Contains(t, single.String(), "1 change: ")
	require.Contains(t, single.String(), "; 1 start, at least 2 needed;")
	require.Contains(t, single.String(), "; 1 move left for later;")
}

// A long table ends with a line that says how many rows it omits.
func TestPlan_StringIsBounded(t *testing.T) {
	p := plan{}
	for _, name := range names("t", 1000) {
		p.Changes = append(p.Changes, change{Kind: orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonMissing}, Task: name, To: "w1"})
	}
	text := p.String()
	require.Contains(t, text, "t50 ")
	require.NotContains(t, text, "t51 ")
	require.Contains(t, text, "… and 950 more\n")
}

func TestPlan_JSON(t *testing.T) {
	text, err := json.Marshal(samplePlan())
	require.NoError(t, err)
	require.JSONEq(t, `{
		"stats": {
			"term": {"epoch": 7, "number": 42},
			"start": "2026-01-02T03:04:05Z",
			"listing_ns": 0, "planning_ns": 0, "writing_ns": 0, "total_ns": 0,
			"workers": {"answering": 0, "silent": 0, "lost": 0, "draining": 0, "late": 0, "quarantined": 0, "stuck": 0},
			"instances": {"wanted": 0, "running": 0, "held": 0, "missing": 0, "unplaceable": 0, "unexpected": 0, "duplicate": 0},
			"changes": {"move/drain": 1, "start/missing": 1, "stop/surplus": 1},
			"cut": false,
			"deferred": 3, "adds": 2, "lower_bound": 2, "spread": 0,
			"list": `+noCalls+`, "add": `+noCalls+`, "remove": `+noCalls+`, "apply": `+noCalls+`,
			"mass_loss": true,
			"err": "boom"
		},
		"changes": [
			{"op": "start", "reason": "missing", "task": "a", "to": "w1", "outcome": "done"},
			{"op": "move", "reason": "drain", "task": "bb", "from": "w1", "to": "w2", "outcome": "returned", "err": "boom"},
			{"op": "stop", "reason": "surplus", "task": "c", "from": "w3", "outcome": "done"}
		],
		"waiting": [
			{"task": "d", "instances": 2, "kind": "unplaced", "reason": "no open worker"},
			{"task": "e", "instances": 1, "kind": "held", "reason": "held", "worker": "w3"}
		],
		"paused": [
			{"kind": "worker", "worker": "w4", "until_term": 44, "failures": 1, "err": "boom"},
			{"kind": "task", "worker": "w1", "task": "g", "until_term": 48, "failures": 2, "err": "boom"},
			{"kind": "start", "worker": "w4", "task": "f", "until_term": 50, "failures": 3, "err": "boom"},
			{"kind": "stop", "worker": "w5", "task": "h", "until_term": 43, "failures": 1, "err": "boom"},
			{"kind": "moves", "until_term": 44, "failures": 1, "err": "boom"}
		],
		"workers": [
			{"name": "w1", "state": "answering", "draining": true, "before": 5, "after": 4},
			{"name": "w3", "state": "silent", "before": 2, "after": 2},
			{"name": "w4", "state": "answering", "quarantined": true, "before": 0, "after": 0},
			{"name": "w2", "state": "answering", "late": true, "before": 1, "after": 2},
			{"name": "w5", "state": "lost", "before": 0, "after": 0}
		]
	}`, string(text))
}
