package scenario

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator"
)

// leader is an orchestrator of a transcript.
type leader struct {
	*orchestrator.Orchestrator[string, string]
	name      string
	transport *transport
	stats     []orchestrator.TermStats
	done      chan struct{} // closed at the end of the term under way; nil between terms
	began     time.Time
	took      time.Duration // by the last term
	err       error         // of the last term
}

// addLeader adds a leader with the expectations of the others, and selects it.
func (p *player) addLeader(args []string) {
	l := &leader{transport: newTransport(p)}
	opts := []orchestrator.Option{
		orchestrator.WithSeed(0),
		orchestrator.WithStats(func(s orchestrator.TermStats) { l.stats = append(l.stats, s) }),
	}
	for _, arg := range args {
		if name, value, ok := strings.Cut(arg, "="); ok {
			opts = append(opts, p.setting(name, value))
		} else {
			l.name = arg
		}
	}
	p.sleep(time.Millisecond) // the epochs of two leaders differ
	var err error
	l.Orchestrator, err = orchestrator.New[string, string](l.transport, opts...)
	p.must(err)
	for _, name := range p.members {
		p.must(l.AddWorker(name))
	}
	if p.current != nil {
		p.must(l.UpdateTasks(p.current.ListExpectedTasks()))
	}
	p.leaders, p.current = append(p.leaders, l), l
}

func (p *player) setting(name, value string) orchestrator.Option {
	switch name {
	case "timeout":
		return orchestrator.WithCommunicatorTimeout(p.duration(value))
	case "grace":
		if value == "until-removed" {
			return orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved)
		}
		return orchestrator.WithGracePeriod(p.duration(value))
	case "moves":
		return orchestrator.WithMaxMoves(p.number(value))
	case "loss":
		f, err := strconv.ParseFloat(value, 64)
		p.must(err)
		return orchestrator.WithMaxLoss(f)
	case "concurrency":
		return orchestrator.WithConcurrency(p.number(value))
	case "epoch":
		return orchestrator.WithEpoch(uint64(p.number(value)))
	case "seed":
		return orchestrator.WithSeed(uint64(p.number(value)))
	case "pause":
		return orchestrator.WithMaxPause(p.duration(value))
	case "dry":
		return orchestrator.WithDryRun()
	case "wait":
		return orchestrator.WithInitialWait(p.duration(value))
	case "settle":
		return orchestrator.WithSettle(p.duration(value))
	case "handoff":
		return orchestrator.WithHandoff(p.handoff(value))
	}
	p.fatalf("unknown setting %s", name)
	return nil
}

func (p *player) handoff(order string) orchestrator.Handoff {
	switch order {
	case "stop-then-start":
		return orchestrator.StopThenStart
	case "start-then-stop":
		return orchestrator.StartThenStop
	}
	p.fatalf("unknown order %s", order)
	return 0
}

func (p *player) lead(args []string) {
	i := slices.IndexFunc(p.leaders, func(l *leader) bool { return l.name == args[0] })
	if i < 0 {
		p.fatalf("unknown leader %s", args[0])
	}
	p.current = p.leaders[i]
}

func (p *player) begin([]string) {
	l := p.current
	if l.done != nil {
		p.fatalf("a term is under way")
	}
	l.began, l.done = time.Now(), make(chan struct{})
	go func() {
		defer close(l.done)
		l.err = l.NextTerm(p.t.Context())
		l.took = time.Since(l.began)
	}()
}

func (p *player) finish([]string) {
	p.awaitTerm()
	p.printTerm(p.current)
}

func (p *player) awaitTerm() {
	l := p.current
	if l.done == nil {
		p.fatalf("no term is under way")
	}
	<-l.done
	l.done = nil
	synctest.Wait()
}

func (p *player) term([]string) {
	p.begin(nil)
	p.finish(nil)
}

func (p *player) terms(args []string) {
	for i := range p.number(args[0]) {
		if i > 0 && len(args) > 1 {
			p.sleep(p.duration(args[1]))
		}
		p.begin(nil)
		p.awaitTerm()
		if l := p.current; len(l.LastPlan().Changes) > 0 {
			p.printTerm(l)
		} else {
			p.printTitle(l)
			p.printPlan(l.LastPlan())
			p.printFailures(l.err)
		}
	}
}

func (p *player) plan(args []string) {
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
				h.AddWorkers = append(h.AddWorkers, orchestrator.Worker[string]{Name: name})
			}
		case "tasks":
			for _, name := range names {
				h.AddTasks = append(h.AddTasks, orchestrator.Task[string]{Name: name})
			}
		default:
			p.fatalf("unknown hypothesis %s", what)
		}
	}
	plan, err := p.current.Plan(h)
	if err != nil {
		p.printError(err)
		return
	}
	p.printf("only a plan")
	p.printPlan(plan)
}

func (p *player) later(args []string) {
	at, do := p.duration(args[0]), p.command(args[1:])
	p.planned = append(p.planned, func(began time.Time) {
		p.sleep(at - time.Since(began))
		do()
	})
}

func (p *player) run(args []string) {
	l := p.current
	ctx, cancel := context.WithTimeoutCause(p.t.Context(), p.duration(args[1]), errors.New("the time is up"))
	defer cancel()
	began, before := time.Now(), len(l.stats)
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, do := range p.planned {
			do(began)
		}
	})
	err := l.Run(ctx, p.duration(args[0]))
	wg.Wait()
	p.planned = nil
	for _, s := range l.stats[before:] {
		changes := 0
		for _, n := range s.Changes {
			changes += n
		}
		p.printf("after %v: term %d, %s", s.Start.Sub(began), s.Term.Number, plural(changes, "change"))
	}
	p.printf("ended: %v", err)
	p.printRows(l)
}

// forLeaders makes a change of the expectations at every leader.
func (p *player) forLeaders(change func(l *leader) error) {
	for _, l := range p.leaders {
		p.printError(change(l))
	}
}

func (p *player) join(args []string) {
	for _, name := range expand(args) {
		if p.cluster.Worker(name) == nil {
			p.cluster.Start(name)
		}
		p.forLeaders(func(l *leader) error { return l.AddWorker(name) })
		if !slices.Contains(p.members, name) {
			p.members = append(p.members, name)
		}
		p.setLatency(name)
	}
}

func (p *player) leave(name string) {
	p.forLeaders(func(l *leader) error { l.RemoveWorker(name); return nil })
	p.members = slices.DeleteFunc(p.members, func(m string) bool { return m == name })
}

func (p *player) drain(name string) {
	p.forLeaders(func(l *leader) error { return l.DrainWorker(name) })
}

func (p *player) undrain(name string) {
	p.forLeaders(func(l *leader) error { return l.UndrainWorker(name) })
}

func (p *player) tasks(args []string) {
	var opts []orchestrator.TaskOption
	for _, arg := range args {
		if order, ok := strings.CutPrefix(arg, "handoff="); ok {
			opts = append(opts, orchestrator.WithHandoff(p.handoff(order)))
		}
	}
	for _, arg := range args {
		name, n, ok := strings.Cut(arg, "=")
		if name == "handoff" {
			continue
		}
		with := opts
		if ok {
			with = append(slices.Clone(opts), orchestrator.WithTaskInstances(p.number(n)))
		}
		for _, task := range expand([]string{name}) {
			p.forLeaders(func(l *leader) error { return l.AddTask(task, with...) })
		}
	}
}

func (p *player) drop(task string) {
	p.forLeaders(func(l *leader) error { l.RemoveTask(task); return nil })
}
