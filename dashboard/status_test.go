package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

// requireSummary checks the summary, and the lines of what needs a person.
func (f *fleet) requireSummary(want string, problems ...string) {
	f.t.Helper()
	require.Equal(f.t, problems, f.problems())
	require.Equal(f.t, want, f.status().Summary)
}

// TestSummary has the sentence of each state in which nothing needs a person.
func TestSummary(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 0, 0, nil)
		f.requireSummary("No term has ended yet, so nothing is known of the workers.")
		f.terms(1)
		f.requireSummary("There are no workers and no tasks.")

		f = newFleet(t, 3, 0, nil)
		require.NoError(t, f.Add(t.Context(), "w1", "t1"))
		f.terms(1)
		f.requireSummary("No tasks are loaded yet, so no task is stopped. 1 task runs on the workers.")
		require.NoError(t, f.UpdateTasks(nil))
		f.terms(2)
		f.requireSummary("There are no tasks.")

		f = newFleet(t, 3, 328, nil)
		f.terms(1)
		f.requireSummary("All 328 instances run, evenly.")
		f.Slow(20*time.Second, "w1")
		require.NoError(t, f.DrainWorker("w2"))
		f.Heal()
		f.terms(1)
		f.requireSummary("All 328 instances run. 1 draining worker is empty.")

		f = newFleet(t, 2, 1, nil)
		f.terms(1)
		f.requireSummary("The only instance runs, evenly.")
	})
}

// TestD13_ADrainThatMakesProgress: it is no problem.
func TestD13_ADrainThatMakesProgress(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 3, 30, options{orchestrator.WithMaxMoves(2)})
		f.terms(1)
		require.NoError(t, f.DrainWorker("w1"))
		f.terms(1)
		f.requireSummary("All 30 instances run. 1 worker drains, with 8 tasks left.")
	})
}

// TestD13_Causes has the line of each kind of problem.
func TestD13_Causes(t *testing.T) {
	refuse := func(err string, workers, tasks string) func(orchestrator.Op, string, string) error {
		return func(op orchestrator.Op, worker, task string) error {
			if op == orchestrator.OpAdd && (workers == "" || worker == workers) && (tasks == "" || task == tasks) {
				return fmt.Errorf("%w: %s on %s", orchestrator.ErrRejected, err, worker)
			}
			return nil
		}
	}
	for _, test := range []struct {
		name           string
		workers, tasks int
		opts           options
		act            func(*fleet) // after a term
		want           []string
	}{
		{name: "a silent worker", workers: 3, tasks: 9, act: func(f *fleet) {
			f.Cut("w2")
			f.terms(2)
		}, want: []string{"silent: w2 has been silent since 00:00:01 UTC: the worker is cut off: w2. Its 3 instances are held."}},
		{name: "a slow worker", workers: 3, tasks: 9, act: func(f *fleet) {
			f.Slow(20*time.Second, "w2")
			f.terms(1)
		}, want: []string{"late: w2 is late: it has not answered since 00:00:00 UTC. Its 3 instances are held."}},
		{name: "slow workers", workers: 6, tasks: 12, act: func(f *fleet) {
			f.Slow(20*time.Second, "w2", "w3")
			f.terms(1)
		}, want: []string{"late: 2 workers are late: the first has not answered since 00:00:00 UTC. Their 4 instances are held."}},
		{name: "a rack of silent workers", workers: 12, tasks: 24, act: func(f *fleet) {
			f.Cut("w2", "w3", "w4", "w5")
			f.terms(2)
		}, want: []string{"silent: 4 workers have been silent since 00:00:01 UTC, for example: the worker is cut off: w2. Their 8 instances are held."}},
		{name: "mass loss", workers: 4, tasks: 8, act: func(f *fleet) {
			f.Cut("w1", "w2", "w3")
			f.terms(2)
		}, want: []string{"mass loss: 3 workers have been silent since 00:00:01 UTC, for example: the worker is cut off: w1. " +
			"The network of this leader may have failed, so no worker is declared lost for now. Their 6 instances are held."}},
		{name: "workers that fall silent one after the other", workers: 6, tasks: 12, act: func(f *fleet) {
			f.Cut("w2")
			f.terms(1)
			f.Cut("w2", "w3")
			f.terms(2)
		}, want: []string{"silent: 2 workers have been silent, the first since 00:00:01 UTC, for example: the worker is cut off: w2. Their 4 instances are held."}},
		{name: "a lost worker", workers: 3, tasks: 9, opts: options{orchestrator.WithGracePeriod(time.Second)}, act: func(f *fleet) {
			f.Cut("w2")
			f.terms(4)
		}, want: []string{"lost: w2 has been lost since 00:00:01 UTC: the worker is cut off: w2. It had 3 tasks."}},
		{name: "a stuck worker", workers: 3, tasks: 9, act: func(f *fleet) {
			f.Stick("w1")
			f.terms(15)
		}, want: []string{"stuck: w1 has been stuck since 00:00:11 UTC: a call has not returned, so no other is made. Its 3 instances are held."}},
		{name: "a worker that never answered", workers: 0, tasks: 2, act: func(f *fleet) {
			for _, name := range []string{"w1", "w2"} {
				require.NoError(f.t, f.AddWorker(name))
			}
			f.Start("w2")
			f.terms(1)
		}, want: []string{"unplaced: 2 instances of 2 tasks have no place yet: they may run on w1, which has not answered since this leader started."}},
		{name: "workers that have not registered yet", workers: 1, tasks: 2, opts: options{orchestrator.WithInitialWait(time.Minute)}, act: func(f *fleet) {
			require.NoError(f.t, f.AddTask("new"))
			f.terms(1)
		}, want: []string{"unplaced: 3 instances of 3 tasks are not started before 00:01:00 UTC: this leader waits for workers to register, and one of them may run them."}},
		{name: "too many instances", workers: 3, tasks: 1, act: func(f *fleet) {
			require.NoError(f.t, f.AddTask("audit", orchestrator.WithTaskInstances(5)))
			f.terms(1)
		}, want: []string{"unplaced: 2 instances of audit have no place: every worker that could take one already runs the task."}},
		{name: "no workers", tasks: 2, want: []string{"unplaced: 2 instances of 2 tasks have no place: there are no workers."}},
		{name: "only draining workers", workers: 1, tasks: 2, act: func(f *fleet) {
			require.NoError(f.t, f.DrainWorker("w1"))
			require.NoError(f.t, f.AddTask("new"))
			f.terms(1)
		}, want: []string{
			"unplaced: 1 instance of new has no place: no worker is open to new tasks.",
			"staying: w1 cannot be emptied. 2 instances of 2 tasks stay there: no worker is open to new tasks.",
		}},
		{name: "a task that no worker starts", workers: 9, tasks: 9, act: func(f *fleet) {
			f.Refuse(refuse("no schema 7", "", "poison"))
			require.NoError(f.t, f.AddTask("poison"))
			f.terms(12)
		}, want: []string{"failing: poison fails to start: rejected by the worker: no schema 7 on w9. 1 instance is missing."}},
		{name: "a worker that starts nothing", workers: 2, tasks: 30, act: func(f *fleet) {
			f.Refuse(refuse("disk full", "w3", ""))
			f.Start("w3")
			require.NoError(f.t, f.AddWorker("w3"))
			f.terms(3)
		}, want: []string{"quarantined: w3 is quarantined, because starts failed: rejected by the worker: disk full on w3."}},
		{name: "a dry run", workers: 1, tasks: 2, opts: options{orchestrator.WithDryRun()}, want: []string{
			"unplaced: 2 instances of 2 tasks would be started, but this leader only plans (WithDryRun).",
		}},
		{name: "no moves", workers: 1, tasks: 2, opts: options{orchestrator.WithMaxMoves(0)}, act: func(f *fleet) {
			f.Start("w2")
			require.NoError(f.t, f.AddWorker("w2"))
			f.terms(1)
		}, want: []string{"deferred: 1 move waits: this leader may move none (WithMaxMoves)."}},
		{name: "a cut term", workers: 1, tasks: 2, act: func(f *fleet) {
			f.Hang("w1")
			ctx, cancel := context.WithTimeoutCause(f.t.Context(), time.Second, errors.New("the program ends"))
			defer cancel()
			_ = f.NextTerm(ctx)
		}, want: []string{"term cut: The last term ended early: term 2, before its writes: the program ends."}},
		{name: "a stop that fails", workers: 2, tasks: 2, act: func(f *fleet) {
			f.Refuse(func(op orchestrator.Op, _, _ string) error {
				if op == orchestrator.OpRemove {
					return fmt.Errorf("%w: busy", orchestrator.ErrRejected)
				}
				return nil
			})
			f.RemoveTask("t1")
			f.terms(4)
		}, want: []string{"unexpected: t1 should stop on w1 and cannot: rejected by the worker: busy."}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := newFleet(t, test.workers, test.tasks, test.opts)
				f.terms(1)
				if test.act != nil {
					test.act(f)
				}
				require.Equal(t, test.want, f.problems())
			})
		})
	}
}

// While only counters change, the text of a problem stays, and they are beside it (D26).
func TestD26_APoisonTaskIsOneProblem(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 9, 18, nil)
		f.terms(1)
		f.Refuse(func(op orchestrator.Op, worker, task string) error {
			if op == orchestrator.OpAdd && task == "poison" {
				return fmt.Errorf("%w: no schema 7 on %s", orchestrator.ErrRejected, worker)
			}
			return nil
		})
		require.NoError(t, f.AddTask("poison"))
		texts := make(map[string]bool)
		tries, before := 0, f.Last()
		for tries < 19 {
			f.terms(1)
			for _, c := range f.LastPlan().Changes {
				if c.Err != nil {
					tries++
				}
			}
			p := f.status().Problems[0]
			texts[p.Text] = true
			require.Equal(t, []any{1, tries, min(tries, 9)}, []any{f.status().ProblemsTotal, p.Tries, p.TriedBy})
		}
		require.Len(t, texts, 1, "%v", texts)
		require.NotNil(t, before)
		p := f.status().Problems[0]
		f.requireShown(map[string]string{"/": "19 starts refused, by 9 workers; next try in " + strconv.Itoa(int(time.Until(p.NextTry).Seconds())) + " s"})
		for time.Now().Before(p.NextTry) { // it is when it was said to be
			require.Equal(t, tries, f.status().Problems[0].Tries)
			f.terms(1)
		}
		f.terms(1)
		require.Equal(t, tries+1, f.status().Problems[0].Tries)

		f.RemoveTask("poison")
		f.terms(2)
		require.Empty(t, f.status().Problems)
		require.NoError(t, f.AddTask("poison"))
		f.terms(1)
		require.Equal(t, 1, f.status().Problems[0].Tries, "it is another time")
	})
}

// A worker that does not answer is described in the same words in each term, silent or lost (D26).
func TestD26_TheTextOfALostWorkerStays(t *testing.T) {
	for name, cut := range map[string]func(f *fleet){
		"refuses": func(f *fleet) { f.Cut("w2") },
		"hangs":   func(f *fleet) { f.Hang("w2") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := newFleet(t, 3, 9, options{orchestrator.WithGracePeriod(30 * time.Second)})
				f.terms(1)
				cut(f)
				texts := make(map[string]bool)
				for range 90 {
					f.terms(1)
					for _, text := range f.problems() {
						texts[text] = true
					}
				}
				require.LessOrEqual(t, len(texts), 3, "late, silent and lost: %v", texts)
			})
		})
	}
}

// A drain that waits for a stop says for which task, since when, and how often it was asked (D28).
func TestD28_AHungDrain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 3, 9, nil)
		f.terms(1)
		stuck := f.RunsOn("w2")[0]
		f.Refuse(func(op orchestrator.Op, _, task string) error {
			if op == orchestrator.OpRemove && task == stuck {
				return fmt.Errorf("%w: still busy", orchestrator.ErrRejected)
			}
			return nil
		})
		began := time.Now()
		require.NoError(t, f.DrainWorker("w2"))
		for range 8 { // terms that try the stop, and others
			f.terms(1)
			waits := get[api.Tasks](t, f.dashboard, "/api/v1/tasks?waiting=any").Tasks
			require.Len(t, waits, 1)
			require.Len(t, waits[0].Waiting, 1)
			require.Equal(t, api.Waiting{Task: stuck, Instances: 1, Reason: orchestrator.ReasonStopping, Worker: "w2", Named: true}, waits[0].Waiting[0])
			why := get[api.TaskDetail](t, f.dashboard, "/api/v1/task?name="+stuck).Reasons[0]
			require.Equal(t, orchestrator.ReasonStopping, why.Reason, why)
		}
		s := f.status()
		require.Equal(t, 1, s.ProblemsTotal, "%v", s.Problems)
		p := s.Problems[0]
		require.Equal(t, api.ProblemStaying, p.Kind)
		require.Equal(t, "w2 cannot be emptied: "+stuck+" does not stop: rejected by the worker: still busy.", p.Text)
		require.Equal(t, []api.Name{{Name: stuck}}, p.Tasks)
		require.Less(t, p.Since.Sub(began), 2*time.Second)
		require.Greater(t, p.Tries, 2)
		require.True(t, p.NextTry.After(s.Now))
	})
}

// The text of a problem stays while only the numbers in its error change, and names another worker once the
// first is well (D26).
func TestD26_TextsStayWhenNumbersChange(t *testing.T) {
	var n atomic.Int64
	for name, c := range map[string]struct {
		op      orchestrator.Op
		arrange func(f *fleet) error
	}{
		"a lost worker":         {orchestrator.OpList, func(*fleet) error { return nil }},
		"a stop that is denied": {orchestrator.OpRemove, func(f *fleet) error { return f.DrainWorker("w2") }},
		"a start that fails":    {orchestrator.OpAdd, func(f *fleet) error { return errors.Join(f.AddTask("t10"), f.AddTask("t11")) }},
		"runs that fail":        {orchestrator.OpApply, func(*fleet) error { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				fails, well := false, ""
				states := func(worker string) []dashboard.TaskState[string] {
					i := n.Add(1)
					if !fails || c.op != orchestrator.OpApply || worker == well {
						return nil
					}
					return []dashboard.TaskState[string]{{Task: "t" + worker, State: "backoff", Attempts: int(i), Err: fmt.Sprintf("%s: try %d", worker, i)}}
				}
				f := newFleet(t, 3, 9, options{orchestrator.WithGracePeriod(2 * time.Second)}, dashboard.WithTaskStates(states))
				f.terms(1)
				fails = true
				require.NoError(t, c.arrange(f))
				f.Refuse(func(op orchestrator.Op, worker, _ string) error {
					i := n.Add(1)
					if op == c.op && (worker == "w2" || op == orchestrator.OpAdd) {
						return fmt.Errorf("%w: request %d: busy", orchestrator.ErrRejected, i)
					}
					return nil
				})
				f.terms(6)
				first := f.problems()
				require.NotEmpty(t, first)
				for range 12 {
					f.terms(1)
					require.Equal(t, first, f.problems())
				}
				if c.op == orchestrator.OpApply {
					require.Contains(t, first[0], "w1: try ")
					well = "w1"
					f.terms(1)
					require.Contains(t, f.problems()[0], "w2: try ")
				}
			})
		})
	}
}

// A worker whose tasks no other worker can start cannot be emptied either.
func TestD28_ADrainWithoutAnotherPlace(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 3, 9, nil)
		f.terms(1)
		stays := f.RunsOn("w2")[0]
		f.Refuse(func(op orchestrator.Op, worker, task string) error {
			if op == orchestrator.OpAdd && task == stays && worker != "w2" {
				return fmt.Errorf("%w: no licence", orchestrator.ErrRejected)
			}
			return nil
		})
		require.NoError(t, f.DrainWorker("w2"))
		f.terms(5)
		for range 40 {
			f.terms(1)
			require.Equal(t, []string{"staying: w2 cannot be emptied. 1 instance of " + stays +
				" stays there: the workers that could take it failed to start it: rejected by the worker: no licence."}, f.problems(), f.LastPlan().String())
			require.NotEmpty(t, get[api.Tasks](t, f.dashboard, "/api/v1/tasks?waiting=any").Tasks, f.LastPlan().String())
		}
		require.Contains(t, f.RunsOn("w2"), stays)
	})
}

// What only a replica knows is said in sentences of the dashboard, with a link to the task (D34).
func TestD34_ProblemsOfAReplica(t *testing.T) {
	f := newFleet(t, 1, 1, nil, dashboard.WithProblems(func() []dashboard.Problem {
		return []dashboard.Problem{{Kind: "source failing", Err: "refused"}, {Kind: "brake"}, {Kind: "bad rows", Task: "a", Err: "no"}, {Kind: "own", Text: "Mine."}}
	}))
	f.terms(1)
	require.Equal(t, []string{
		"source failing: The Source of the tasks does not answer, so they stay as they are: refused.",
		"brake: The last answers of the Source lack most tasks. They stay until every answer of a minute has lacked them.",
		"bad rows: The Source has bad rows. Their tasks stay as they were. The first is a: no.",
		"own: Mine.",
	}, f.problems())
	require.Equal(t, []api.Name{{Name: "a"}}, f.status().Problems[2].Tasks)
}

// TestD13_Since: a problem says since when it holds, by the history if the term does not know.
func TestD13_Since(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		start := time.Now()
		f := newFleet(t, 3, 30, nil)
		f.terms(2)
		f.Refuse(func(op orchestrator.Op, worker, task string) error {
			if op == orchestrator.OpAdd && (worker == "w4" || task == "poison") {
				return fmt.Errorf("%w: disk full", orchestrator.ErrRejected)
			}
			return nil
		})
		since := make(map[string]time.Duration)
		for _, act := range []func() error{
			func() error { f.Start("w4"); return f.AddWorker("w4") },
			func() error { return f.AddTask("audit", orchestrator.WithTaskInstances(5)) },
			func() error { return f.AddTask("poison") },
		} {
			require.NoError(t, act())
			f.terms(3)
			for _, p := range f.status().Problems {
				since[fmt.Sprint(p.Kind, p.Workers, p.Tasks)] = p.Since.Sub(start)
			}
		}
		require.Equal(t, map[string]time.Duration{
			"quarantined[w4] []": 2 * time.Second, "unplaced[] [audit]": 5 * time.Second,
			"failing[w4] [audit]": 5 * time.Second, "failing[w1 w2 w4] [poison]": 8 * time.Second,
		}, since)
	})
}

// TestD14_Random: in random clusters the lines add up to the missing instances and to those
// that silent workers hold, and name each task.
func TestD14_Random(t *testing.T) {
	for seed := range uint64(10) {
		inBubble(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			f := newFleet(t, 6, 0, options{orchestrator.WithMaxMoves(3), orchestrator.WithGracePeriod(15 * time.Second)})
			for i := range 12 {
				require.NoError(t, f.AddTask(fmt.Sprintf("t%d", i), orchestrator.WithTaskInstances(1+i%4)))
			}
			for range 25 {
				name := fmt.Sprintf("w%d", 1+r.IntN(6))
				switch r.IntN(8) {
				case 0:
					f.Cut(name)
				case 1:
					f.Hang(name)
				case 2:
					f.LoseAnswers(name)
				case 3:
					f.Refuse(func(_ orchestrator.Op, worker, _ string) error {
						if worker == name {
							return errors.New("disk full")
						}
						return nil
					})
				case 4:
					f.Refuse(func(_ orchestrator.Op, _, task string) error {
						if task == "t3" {
							return fmt.Errorf("%w: no such schema", orchestrator.ErrRejected)
						}
						return nil
					})
				case 5:
					require.NoError(t, f.DrainWorker(name))
				case 6:
					require.NoError(t, f.UndrainWorker(name))
				case 7:
					f.Heal()
					f.Refuse(nil)
				}
				f.terms(1)
				f.requireExplained()
			}
		})
	}
}

// requireExplained checks the problems against the last plan.
func (f *fleet) requireExplained() {
	f.t.Helper()
	s, plan := f.status(), f.LastPlan()
	require.Len(f.t, s.Problems, s.ProblemsTotal, "the test checks all problems")
	missing, held, named := 0, 0, make(map[string]bool)
	for _, p := range s.Problems {
		switch p.Kind {
		case api.ProblemUnplaced, api.ProblemFailing:
			missing += p.Instances
			for _, task := range p.Tasks {
				named[task.Name] = true
			}
			if p.TasksTotal > len(p.Tasks) {
				named["more"] = true
			}
		case api.ProblemSilent, api.ProblemStuck, api.ProblemLate, api.ProblemMassLoss:
			held += p.Instances
		}
		require.NotEmpty(f.t, p.Text)
	}
	require.Equal(f.t, s.Instances.Missing, missing, "%v", s.Problems)
	for _, w := range plan.Waiting {
		switch w.Kind() {
		case orchestrator.WaitingUnplaced, orchestrator.WaitingFailing:
			require.True(f.t, named[w.Task] || named["more"], "%s is in no line of %v", w.Task, s.Problems)
			detail := get[api.TaskDetail](f.t, f.dashboard, "/api/v1/task?name="+w.Task)
			require.Positive(f.t, detail.Missing)
			require.Len(f.t, detail.Reasons, len(plan.Workers))
		case orchestrator.WaitingHeld:
			held -= w.Instances
		}
	}
	require.Zero(f.t, held, "held instances: %v", s.Problems)
}

// TestStatus_Overdue: no term for three intervals is a problem, and changes the tag.
func TestStatus_Overdue(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 2, 4, nil)
		ctx, cancel := context.WithCancel(t.Context())
		source := &paused{Source: f.Orchestrator}
		dashboard.Lead(f.dashboard, source)
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx, 10*time.Second) }()
		time.Sleep(15 * time.Second)
		f.requireSummary("All 4 instances run, evenly.")
		tag := get[api.Current](t, f.dashboard, "/api/v1/progress").Tag
		source.last = f.Last() // as if its terms did not end
		time.Sleep(36 * time.Second)
		f.requireSummary("1 thing needs attention.", "no terms: No term has ended since 00:00:10 UTC, and one should begin every 10s.")
		require.NotEqual(t, tag, get[api.Current](t, f.dashboard, "/api/v1/progress").Tag)
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

// A program that calls NextTerm, and a Run that has ended, have no terms any more (D29).
func TestD29_NoTermsAnyMore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 2, 4, nil)
		dashboard.Lead(f.dashboard, f.Orchestrator)
		for range 30 {
			f.terms(1)
			time.Sleep(2 * time.Second)
		}
		f.requireSummary("All 4 instances run, evenly.")
		none := func() string {
			end := f.LastPlan().Stats.Start.Add(f.LastPlan().Stats.Total)
			time.Sleep(71*time.Second - time.Since(end))
			require.Equal(t, end, f.status().Problems[0].Since.Local())
			return end.UTC().Format("no terms: No term has ended since 15:04:05 UTC, and the program does not run any.")
		}
		f.requireSummary("1 thing needs attention.", none())

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx, time.Second) }()
		time.Sleep(time.Minute + 500*time.Millisecond)
		f.requireSummary("All 4 instances run, evenly.")
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		f.requireSummary("1 thing needs attention.", none())
	})
}

// paused is a source whose last term stays the same once it is set.
type paused struct {
	dashboard.Source[string, string]
	last *orchestrator.Snapshot[string, string]
}

func (p *paused) Last() *orchestrator.Snapshot[string, string] {
	if p.last != nil {
		return p.last
	}
	return p.Source.Last()
}

// A crash loop has its age and the number of runs, and one that is long over is no problem (D27).
func TestD27_TheAgeOfACrashLoop(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		began := time.Now()
		states := make(map[string]dashboard.TaskState[string])
		f := newFleet(t, 2, 4, nil, dashboard.WithTaskStates(func(worker string) []dashboard.TaskState[string] {
			return []dashboard.TaskState[string]{states[worker]}
		}))
		time.Sleep(time.Hour)
		states["w1"] = dashboard.TaskState[string]{Task: "t1", State: "backoff", Err: "no disk", Attempts: 3, Since: time.Now(), Failing: began.Add(time.Minute)}
		states["w2"] = dashboard.TaskState[string]{Task: "t2", State: "running", Err: "no disk", Attempts: 9, Since: time.Now(), Failing: began}
		f.terms(1)
		p := f.status().Problems[0]
		require.Equal(t, "2 tasks fail again and again on 2 workers: no disk.", p.Text)
		require.Equal(t, []any{"runs", 9, began.UTC(), true}, []any{p.Tried, p.Tries, p.Since.UTC(), p.NextTry.IsZero()})
		f.requireShown(map[string]string{"/": "9 runs in a row failed"})
		states["w1"] = dashboard.TaskState[string]{Task: "t1", State: "running", Err: "no disk", Since: began}
		states["w2"] = dashboard.TaskState[string]{Task: "t2", State: "running", Err: "no disk", Since: began}
		f.terms(1)
		f.requireSummary("All 4 instances run, evenly.")
	})
}

// A worker out of its band for a minute is a problem while moves that would help wait, and none if no move
// helps (D30).
func TestD30_OutOfBand(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 2, 0, nil)
		for i, weight := range []int64{100, 100, 101} {
			require.NoError(t, f.AddTask(fmt.Sprint("t", i), orchestrator.WithTaskWeight(weight)))
		}
		f.terms(90)
		require.Equal(t, 2, f.LastPlan().Stats.OutOfBand, "%v", f.LastPlan())
		f.requireSummary("All 3 instances run.")

		f.Hold(time.Now().Add(time.Hour), "deploy")
		for i := range 9 {
			require.NoError(t, f.AddTask(fmt.Sprint("small", i), orchestrator.WithTaskWeight(1)))
		}
		f.terms(2)
		for i, task := range f.RunsOn("w1") {
			require.NoError(t, f.AddTask(task, orchestrator.WithTaskWeight(int64(100+i))))
		}
		f.terms(1)
		require.Positive(t, f.LastPlan().Stats.MovesHeld)
		const text = "out of band: 2 workers have been out of their bands since %s: their weights differ by more than 5 %% from what they should weigh. Moves that would help wait."
		f.requireSummary("1 thing needs attention.", fmt.Sprintf(text, "00:00:00 UTC"))
		f.Hold(time.Time{}, "deploy")
		f.terms(3)
		require.Zero(t, f.LastPlan().Stats.OutOfBand)
		f.Hold(time.Now().Add(time.Hour), "deploy")
		require.NoError(t, f.AddTask(f.RunsOn("w1")[0], orchestrator.WithTaskWeight(300)))
		began := time.Now().UTC()
		f.terms(60)
		f.requireSummary("All 12 instances run.")
		f.terms(1)
		f.requireSummary("1 thing needs attention.", fmt.Sprintf(text, began.Format("15:04:05 UTC")))
		require.Equal(t, began, f.status().Problems[0].Since.UTC())
	})
}
