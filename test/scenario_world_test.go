package test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

// What the commands of a scenario do: a cluster of real workers in one process,
// and its leaders.

// world is what a story is about.
type world struct {
	t       *testing.T
	cluster *memory.Cluster[string, string]
	// commands is the table of that name, which cannot refer to itself.
	commands map[string]command
	at       string // the line that is carried out, for failures

	leaders []*boss
	now     *boss // the one whose terms follow
	members []string
	freed   map[string]func()
	planned []func(began time.Time)

	mu    sync.Mutex
	rules []rule
	takes map[string]time.Duration // by worker, how long List does

	out      []string
	observer observer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c, err := memory.New[string, string](nil)
	require.NoError(t, err)
	return &world{t: t, cluster: c, freed: make(map[string]func()), takes: make(map[string]time.Duration), observer: newObserver()}
}

// end closes the cluster. Whoever is still on the way gets there first.
func (w *world) end() {
	w.setRules(nil)
	w.cluster.Heal()
	time.Sleep(timeout) // answers that nobody waits for
	synctest.Wait()
	for _, l := range w.leaders {
		l.wire.quiet()
	}
	require.NoError(w.t, w.cluster.Close(context.WithoutCancel(w.t.Context())))
}

func (w *world) say(format string, args ...any) {
	w.out = append(w.out, fmt.Sprintf(format, args...))
}

// said returns what came of the last command.
func (w *world) said() []string {
	w.observer.tell(w)
	all := w.out
	w.out = nil
	return all
}

// should says what is wrong with a command, which is part of the story.
func (w *world) should(err error) {
	if err != nil {
		w.say("error: %v", err)
	}
}

func (w *world) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	require.NoError(w.t, err, w.at)
	return d
}

func (w *world) number(text string) int {
	n, err := strconv.Atoi(text)
	require.NoError(w.t, err, w.at)
	return n
}

// everyone has every leader hear of a change.
func (w *world) everyone(tell func(l *boss) error) {
	for _, l := range w.leaders {
		w.should(tell(l))
	}
}

func (w *world) join(args []string) {
	for _, name := range expand(args) {
		if w.cluster.Worker(name) == nil {
			w.cluster.Start(name)
		}
		w.everyone(func(l *boss) error { return l.AddWorker(name) })
		if !slices.Contains(w.members, name) {
			w.members = append(w.members, name)
		}
		w.mu.Lock()
		if _, ok := w.takes[name]; !ok {
			w.takes[name] = time.Duration(len(w.takes)+1) * time.Millisecond
		}
		w.mu.Unlock()
	}
}

func (w *world) leave(name string) {
	w.everyone(func(l *boss) error { l.RemoveWorker(name); return nil })
	w.members = slices.DeleteFunc(w.members, func(m string) bool { return m == name })
}

func (w *world) drain(name string) {
	w.everyone(func(l *boss) error { return l.DrainWorker(name) })
}

func (w *world) undrain(name string) {
	w.everyone(func(l *boss) error { return l.UndrainWorker(name) })
}

func (w *world) tasks(args []string) {
	var opts []orchestrator.TaskOption
	for _, arg := range args {
		if order, ok := strings.CutPrefix(arg, "handoff="); ok {
			opts = append(opts, orchestrator.WithHandoff(w.handoff(order)))
		}
	}
	for _, arg := range args {
		name, n, ok := strings.Cut(arg, "=")
		if name == "handoff" {
			continue
		}
		with := opts
		if ok {
			with = append(slices.Clone(opts), orchestrator.WithTaskInstances(w.number(n)))
		}
		for _, task := range expand([]string{name}) {
			w.everyone(func(l *boss) error { return l.AddTask(task, with...) })
		}
	}
}

func (w *world) drop(task string) {
	w.everyone(func(l *boss) error { l.RemoveTask(task); return nil })
}

// runs starts tasks on a worker behind the leader's back.
func (w *world) runs(args []string) {
	ctx := w.t.Context()
	if w.now != nil {
		ctx = orchestrator.ContextWithTerm(ctx, w.now.LastPlan().Stats.Term)
	}
	for _, task := range expand(args[1:]) {
		require.NoError(w.t, w.cluster.Worker(args[0]).Add(ctx, task), w.at)
	}
}
