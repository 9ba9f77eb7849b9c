package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// running makes a fleet whose leader runs terms until the end of the test.
func (n *network) running(tasks ...orchestrator.Task[string]) *fleet {
	f := n.newFleet(newCluster(n.t), "127.0.0.1:1", 7, orchestrator.WithGracePeriod(30*time.Second), orchestrator.WithMaxMoves(2))
	f.prepare(tasks)
	f.lead()
	return f
}

// prepare adds three workers and tasks.
func (f *fleet) prepare(tasks []orchestrator.Task[string]) {
	for i := range 6 {
		tasks = append(tasks, orchestrator.Task[string]{Name: fmt.Sprintf("tenant-%02d", i)})
	}
	require.NoError(f.t, f.UpdateTasks(tasks))
	workers := []string{"w1", "w2", "w3"}
	f.Slow(20*time.Millisecond, workers...)
	for _, w := range workers {
		if f.Worker(w) == nil {
			f.Start(w)
		}
		require.NoError(f.t, f.AddWorker(w))
	}
}

// lead runs terms until stop, or the end of the test, and waits for the first ones. They
// begin at other times than the requests of the commands, so that each run of the test is
// the same.
func (f *fleet) lead() (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(730 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				_ = f.NextTerm(ctx) // the answers show its error
			}
		}
	}()
	stop = func() { cancel(); <-ended }
	f.t.Cleanup(stop)
	time.Sleep(3 * time.Second)
	return stop
}

const leader = "http://127.0.0.1:1"

func TestD23_DrainEndsWhenTheWorkerIsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		f := n.running()
		n.golden("drain", n.run(leader, "drain", "-yes", "w3"))
		require.Empty(t, f.RunsOn("w3"))
		for _, format := range []string{formatJSON, formatName} {
			n.golden("drain again."+format, n.run(leader, "drain", "-yes", "w3", "-o", format))
			n.golden("undrain."+format, n.run(leader, "undrain", "w3", "-o", format))
		}
		n.golden("drain -detach", n.run(leader, "drain", "-yes", "-detach", "w1", "w2", "w1"))
		n.golden("undrain", n.run(leader, "undrain", "w1", "w2"))
	})
}

// Each command takes the names that -o name prints, also if they are not printable.
func TestD10_Names(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		f := n.running(orchestrator.Task[string]{Name: "t\n"}, orchestrator.Task[string]{Name: `t\u000a`})
		alike := []string{`x\u000a`, "x\n"}
		f.Start(alike...)
		for _, w := range alike {
			require.NoError(t, f.AddWorker(w))
		}
		time.Sleep(5 * time.Second)
		const second = `"x\n"`
		require.Equal(t, second+"\nx\\u000a\n", n.run(leader, "workers", "-q", "x", "-o", "name").out)
		require.Contains(t, n.run(leader, "what-if", "-drain", second).out, "answering, draining")
		got := n.run(leader, "drain", "-yes", second, "-o", "name")
		require.Equal(t, exitDone, got.code, got.errors)
		require.Equal(t, second+"\n", got.out)
		require.Empty(t, f.RunsOn(alike[1]))
		require.NotEmpty(t, f.RunsOn(alike[0]))
		require.Contains(t, n.run(leader, "worker", second).out, second+": answering, draining")
		require.Equal(t, second+"\n", n.run(leader, "workers", "-state", "draining", "-o", "name").out)
		require.Equal(t, exitDone, n.run(leader, "undrain", second).code)
		for _, command := range []string{"task", "why"} {
			require.Contains(t, n.run(leader, command, `"t\n"`).out, `"t\n": 1 instance wanted, on `)
			require.Equal(t, exitUnknown, n.run(leader, command, `"t"`).code)
		}
	})
}

// A worker that keeps a task is not empty in time: the task is named, with the reason.
func TestD23_DrainNamesTheTasksThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		n.running(orchestrator.Task[string]{Name: "everywhere\x1b", Instances: 3})
		began := time.Now()
		n.golden("drain a worker that keeps a task", n.run(leader, "drain", "-yes", "w3", "-wait", "20s"))
		require.InDelta(t, 20, time.Since(began).Seconds(), 1)
	})
}

func TestD23_DrainOfASilentWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		f := n.running()
		f.Cut("w3")
		n.golden("drain a silent worker", n.run(leader, "drain", "-yes", "w3", "-wait", "10s"))
		n.golden("drain a worker until it is lost", n.run(leader, "drain", "-yes", "w3"))
		n.golden("drain a worker that is lost", n.run(leader, "drain", "-yes", "w3", "-o", "json"))
	})
}

// A worker that a leader has not heard of may run any task, so it is not empty.
func TestD23_DrainOfAWorkerThatNeverAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		cluster := newCluster(t)
		first := n.newFleet(cluster, "127.0.0.1:1", 7)
		first.prepare(nil)
		stop := first.lead()
		stop()
		require.NotEmpty(t, cluster.RunsOn("w3"))
		second := n.newFleet(cluster, "127.0.0.1:2", 8, orchestrator.WithGracePeriod(time.Hour))
		second.prepare(nil)
		cluster.Cut("w3")
		second.lead()
		got := n.run("http://127.0.0.1:2", "drain", "-yes", "w3", "-wait", "10s")
		require.Equal(t, exitLate, got.code, got.errors)
		require.Contains(t, got.errors, "w3 is silent, draining and may have tasks: it has not answered this leader\n")
		time.AfterFunc(5*time.Second, func() { cluster.Heal("w3") })
		require.Equal(t, exitDone, n.run("http://127.0.0.1:2", "drain", "-yes", "w3").code)
		require.Empty(t, cluster.RunsOn("w3"))
	})
}

func TestDrain_OfAWorkerThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		f := n.running(orchestrator.Task[string]{Name: "everywhere", Instances: 3})
		time.AfterFunc(5*time.Second, func() { f.RemoveWorker("w3") })
		got := n.run(leader, "drain", "-yes", "w3")
		require.Equal(t, exitDone, got.code, got.errors)
		require.Contains(t, got.errors, "w3 has left\n")
	})
}

func TestDrain_ThatSomebodyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		f := n.running(orchestrator.Task[string]{Name: "everywhere", Instances: 3})
		time.AfterFunc(5*time.Second, func() { _ = f.UndrainWorker("w3") })
		got := n.run(leader, "drain", "-yes", "w3")
		require.Equal(t, exitFailed, got.code, got.errors)
		require.Contains(t, got.errors, "orchctl: w3 no longer drains: ")
	})
}

// A drain that ends before a term has seen it is noticed as well.
func TestDrain_ThatSomebodyEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		f := n.running()
		time.AfterFunc(time.Millisecond, func() { _ = f.UndrainWorker("w3") })
		began := time.Now()
		got := n.run(leader, "drain", "-yes", "w3")
		require.Equal(t, exitFailed, got.code, got.errors)
		require.Contains(t, got.errors, "orchctl: w3 no longer drains: ")
		require.Less(t, time.Since(began), 10*time.Second)
	})
}

// An interrupt ends the waiting, and not the drain.
func TestDrain_Interrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		n.running(orchestrator.Task[string]{Name: "everywhere", Instances: 3})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		p, out, errs := n.process()
		code := p.run(ctx, []string{"-server", leader, "drain", "-yes", "w3"})
		n.golden("drain interrupted", result{code, out.String(), errs.String()})
		require.Contains(t, n.run(leader, "worker", "w3").out, "draining")
	})
}

// Without a terminal drain changes nothing unless -yes is given.
func TestDrain_WithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		n.running()
		n.golden("drain without a terminal", n.run(leader, "drain", "w3"))
		time.Sleep(2 * time.Second)
		require.NotContains(t, n.run(leader, "worker", "w3").out, "draining")
	})
}

// On a terminal drain asks, and drains only if the answer is yes.
func TestDrain_Asks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		n.running()
		for answer, want := range map[string]struct {
			code int
			args []string
		}{
			"":      {exitFailed, nil},
			"\n":    {exitFailed, nil},
			"no\n":  {exitFailed, nil},
			"yes\n": {exitDone, nil},
			"Y\n":   {exitDone, nil},
			"n\n":   {exitDone, []string{"-yes"}},
		} {
			require.Equal(t, exitDone, n.run(leader, "undrain", "w3").code)
			time.Sleep(2 * time.Second)
			p, _, errs := n.process()
			p.asks, p.stdin = true, strings.NewReader(answer)
			code := p.run(t.Context(), append([]string{"-server", leader, "drain", "w3"}, want.args...))
			require.Equal(t, want.code, code, "%q: %s", answer, errs)
			require.Equal(t, want.args == nil, strings.Contains(errs.String(), "Drain 1 worker? [y/N] "))
			if want.code == exitFailed {
				require.Contains(t, errs.String(), "nothing was drained")
			}
		}

		ctx, cancel := context.WithCancel(t.Context())
		reader, writer := io.Pipe()
		defer writer.Close()
		time.AfterFunc(time.Second, cancel)
		p, _, errs := n.process()
		p.asks, p.stdin = true, reader
		require.Equal(t, exitFailed, p.run(ctx, []string{"-server", leader, "drain", "w3"}))
		require.Contains(t, errs.String(), "interrupted, nothing was drained")
	})
}

// A drain goes on with the next leader, and is set again if that does not know of it.
func TestDrain_WhileTheLeaderChanges(t *testing.T) {
	for name, test := range map[string]struct {
		after time.Duration // the start of the drain
		knows bool
	}{
		"drain while the leader changes":        {5 * time.Second, true},
		"drain that the next leader forgets":    {5 * time.Second, false},
		"drain that is forgotten before a term": {time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				cluster := newCluster(t)
				all := orchestrator.Task[string]{Name: "everywhere", Instances: 3}
				first := n.newFleet(cluster, "127.0.0.1:1", 7)
				first.prepare([]orchestrator.Task[string]{all})
				stop := first.lead()
				var change sync.WaitGroup
				defer change.Wait()
				change.Go(func() {
					time.Sleep(test.after)
					first.depose()
					stop()
					time.Sleep(5 * time.Second)
					second := n.newFleet(cluster, "127.0.0.1:2", 8)
					second.prepare(nil) // without the task that stays
					if test.knows {
						_ = second.DrainWorker("w3")
					}
					second.lead()
				})
				got := n.run(leader+",http://127.0.0.1:2", "drain", "-yes", "w3")
				// A worker lists tasks that began at the same moment in any order, and the plan follows it.
				got.errors = regexp.MustCompile(`tenant-\d+`).ReplaceAllString(got.errors, "tenant-NN")
				n.golden(name, got)
				require.Empty(t, cluster.RunsOn("w3"))
			})
		})
	}
}
