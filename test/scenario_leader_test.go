package test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// Who leads in a scenario, and their terms.

// boss is a leader.
type boss struct {
	*orchestrator.Orchestrator[string, string]
	name  string
	wire  *wire
	stats []orchestrator.TermStats
	done  chan struct{} // closed at the end of the term that is under way
	began time.Time
	took  time.Duration
	err   error // of the last term
}

// leader adds a leader who knows what the others do.
func (w *world) leader(args []string) {
	l := &boss{wire: &wire{t: w.t, cluster: w.cluster, inFlight: make(map[flight]bool)}}
	l.wire.intercept(w.before)
	opts := []option{orchestrator.WithSeed(0), orchestrator.WithStats(func(s orchestrator.TermStats) { l.stats = append(l.stats, s) })}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			l.name = arg
			continue
		}
		opts = append(opts, w.setting(name, value))
	}
	time.Sleep(time.Millisecond) // the epochs of two leaders differ
	var err error
	l.Orchestrator, err = orchestrator.New[string, string](&line{l.wire, w}, opts...)
	require.NoError(w.t, err, w.at)
	for _, name := range w.members {
		require.NoError(w.t, l.AddWorker(name), w.at)
	}
	if w.now != nil {
		require.NoError(w.t, l.UpdateTasks(w.now.ListExpectedTasks()), w.at)
	}
	w.leaders, w.now = append(w.leaders, l), l
}

func (w *world) setting(name, value string) option {
	switch name {
	case "timeout":
		return orchestrator.WithCommunicatorTimeout(w.duration(value))
	case "grace":
		if value == "until-removed" {
			return orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved)
		}
		return orchestrator.WithGracePeriod(w.duration(value))
	case "moves":
		return orchestrator.WithMaxMoves(w.number(value))
	case "loss":
		f, err := strconv.ParseFloat(value, 64)
		require.NoError(w.t, err, w.at)
		return orchestrator.WithMaxLoss(f)
	case "concurrency":
		return orchestrator.WithConcurrency(w.number(value))
	case "epoch":
		return orchestrator.WithEpoch(uint64(w.number(value)))
	case "seed":
		return orchestrator.WithSeed(uint64(w.number(value)))
	case "pause":
		return orchestrator.WithMaxPause(w.duration(value))
	case "dry":
		return orchestrator.WithDryRun()
	case "settle":
		return orchestrator.WithSettle(w.duration(value))
	case "handoff":
		return orchestrator.WithHandoff(w.handoff(value))
	}
	require.Fail(w.t, "no such setting", "%s", w.at)
	return nil
}

func (w *world) handoff(order string) orchestrator.Handoff {
	switch order {
	case "stop-then-start":
		return orchestrator.StopThenStart
	case "start-then-stop":
		return orchestrator.StartThenStop
	}
	require.Fail(w.t, "no such order", "%s", w.at)
	return 0
}

func (w *world) lead(args []string) {
	i := slices.IndexFunc(w.leaders, func(l *boss) bool { return l.name == args[0] })
	require.GreaterOrEqual(w.t, i, 0, "%s: no such leader", w.at)
	w.now = w.leaders[i]
}

func (w *world) wait(args []string) { time.Sleep(w.duration(args[0])) }

func (w *world) begin([]string) {
	l := w.now
	require.Nil(w.t, l.done, "%s: a term is under way", w.at)
	l.began, l.done = time.Now(), make(chan struct{})
	go func() {
		defer close(l.done)
		l.err = l.NextTerm(w.t.Context())
		l.took = time.Since(l.began)
	}()
}

func (w *world) finish([]string) {
	l := w.now
	require.NotNil(w.t, l.done, "%s: no term is under way", w.at)
	<-l.done
	l.done = nil
	synctest.Wait()
	w.report(l)
}

func (w *world) term([]string) {
	w.begin(nil)
	w.finish(nil)
}

// terms runs many, and reports those in which something happened.
func (w *world) terms(args []string) {
	for i := range w.number(args[0]) {
		if i > 0 && len(args) > 1 {
			w.wait(args[1:])
		}
		w.begin(nil)
		<-w.now.done
		w.now.done = nil
		synctest.Wait()
		if p := w.now.LastPlan(); len(p.Changes) > 0 {
			w.report(w.now)
		} else {
			w.say("%s", w.title(w.now, p))
			w.decided(p)
			w.failed(w.now.err)
		}
	}
}

func (w *world) plan(args []string) {
	var h orchestrator.Hypothesis[string, string]
	for _, arg := range args {
		what, value, _ := strings.Cut(arg, "=")
		names := expand(strings.Split(value, ","))
		switch what {
		case "drain":
			h.Drain = names
		case "undrain":
			h.Undrain = names
		case "silence":
			h.Silence = names
		case "lose":
			h.Lose = names
		case "remove":
			h.RemoveTasks = names
		case "workers":
			for _, name := range names {
				h.AddWorkers = append(h.AddWorkers, member{Name: name})
			}
		case "tasks":
			for _, name := range names {
				h.AddTasks = append(h.AddTasks, task{Name: name})
			}
		default:
			require.Fail(w.t, "no such hypothesis", "%s", w.at)
		}
	}
	p, err := w.now.Plan(h)
	if err != nil {
		w.should(err)
		return
	}
	w.say("only a plan")
	w.decided(p)
}

// later has a command carried out so long after the next run began. Several of
// them are given in their order.
func (w *world) later(args []string) {
	c, ok := w.commands[args[1]]
	require.True(w.t, ok, "%s: no such command", w.at)
	at, do := w.duration(args[0]), c.do
	w.planned = append(w.planned, func(began time.Time) {
		time.Sleep(at - time.Since(began))
		do(w, args[2:])
	})
}

// run has the leader run for a while, and tells of the terms there were.
func (w *world) run(args []string) {
	l := w.now
	ctx, cancel := context.WithTimeoutCause(w.t.Context(), w.duration(args[1]), errors.New("the time is up"))
	defer cancel()
	began, before := time.Now(), len(l.stats)
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, do := range w.planned {
			do(began)
		}
	})
	err := l.Run(ctx, w.duration(args[0]))
	wg.Wait()
	w.planned = nil
	for _, s := range l.stats[before:] {
		w.say("after %v: term %d, %s", s.Start.Sub(began), s.Term.Number, plural(total(s.Changes), "change"))
	}
	w.say("ended: %v", err)
	w.rows(l)
}

func total[K comparable](counts map[K]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

func (w *world) show([]string) { w.rows(w.now) }
