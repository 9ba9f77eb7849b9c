//go:build peers

package main

// Equal replicas on a real PostgreSQL. Package bench/replicas measures them in a test.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/f8949c05/orchestrator/bench/replicas"
)

// errMissing reports that this machine lacks what a part needs.
var errMissing = errors.New("not measured")

// replicaResults holds the results.
type replicaResults struct{ replicas.Results }

// measureReplicas runs the test and reads what it wrote.
func measureReplicas(ctx context.Context, cfg config) (r replicaResults, err error) {
	cfg.log("replicas on PostgreSQL: cold starts, joins, ends, crashes and rolling updates")
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "results.json")
	cmd := exec.CommandContext(ctx, "go", "test", "-tags=peers", "-count=1", "-v", "-timeout=0", "github.com/f8949c05/orchestrator/bench/replicas",
		"-replicas.out="+path, fmt.Sprintf("-replicas.quick=%t", cfg.quick))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	r.Results, err = replicas.Read(path)
	if errors.Is(err, os.ErrNotExist) { // the test was skipped
		_, why, _ := strings.Cut(string(out), "_test.go:")
		why, _, _ = strings.Cut(why, "\n")
		return r, fmt.Errorf("%w: replicas_test.go:%s", errMissing, why)
	}
	return r, err
}

func (r replicaResults) versions() []string {
	version, _, _ := strings.Cut(r.Version, " ") // of the distribution
	return []string{"PostgreSQL " + version}
}

// The goals for a rolling update.
const (
	updateGapGoal   = 200 * time.Millisecond
	updateMovesGoal = 2
)

func (r replicaResults) goals() []goal {
	var gaps, moves []figure
	for _, u := range r.Update {
		gaps = append(gaps, figure{u.Name, float64(ms(samples(u.Gaps).percentile(100)))})
		moves = append(moves, figure{u.Name, mean(u.Moves)})
	}
	return []goal{
		atMost("rolling update of all replicas: longest time that a task does not run", "ms", float64(ms(updateGapGoal)), gaps...),
		atMost("rolling update of all replicas: moves of a task, mean", "", updateMovesGoal, moves...),
	}
}

func (r replicaResults) tables() []table {
	return slices.Concat([]table{r.events(), r.outages(), r.updates(), r.fleets()}, r.calls())
}

// events returns the table of a few replicas. Without LISTEN only events are measured that
// it makes faster.
func (r replicaResults) events() table {
	t := table{
		Title:   "events, ms",
		Columns: []string{"median", "maximum", "without LISTEN: median", "maximum", "gap of a task: median", "maximum"},
	}
	none := replicas.Event{}
	add := func(name string, listening, heartbeats replicas.Event) {
		gaps := slices.Concat(listening.Gaps, heartbeats.Gaps)
		t.add(name, slices.Concat(spread(listening.Took), spread(heartbeats.Took), spread(gaps))...)
	}
	f, l, h := r.Few, r.Few.Listening, r.Few.Heartbeats
	add("cold start: until all tasks run", l.Cold, h.Cold)
	add("cold start: until they are even", l.ColdEven, h.ColdEven)
	add("a replica joins: until they are even", l.Join, h.Join)
	add("SIGTERM of a worker: until its tasks run elsewhere", l.EndWorker, h.EndWorker)
	add("SIGTERM of the leader: until its tasks run elsewhere", l.EndLeader, h.EndLeader)
	add("kill −9 of a worker: until its tasks run elsewhere", f.KillWorker, none)
	add("kill −9 of the leader: until its tasks run elsewhere", f.KillLeader, none)
	add(fmt.Sprintf("the server is away for %v s: until all tasks have stopped", f.Away.Seconds()), f.Server.Stopped, none)
	add("from its return until all tasks run", f.Server.Back, none)
	add("a timer fires late", replicas.Event{Took: r.Late}, none)
	return t
}

// spread returns the median and the maximum in milliseconds.
func spread(s samples) []number {
	if len(s) == 0 {
		return []number{missing(), missing()}
	}
	return []number{ms(s.median()), ms(s.percentile(100))}
}

// outages returns the table of what happens while the server is paused.
func (r replicaResults) outages() table {
	f := r.Few
	t := table{Title: "the server is paused", Columns: []string{"figure"}}
	t.add("rounds", count(f.Rounds))
	t.add("ms", ms(f.Paused))
	t.add("tasks that moved", count(f.Server.PauseMoves))
	return t
}

// updates returns the table of rolling updates.
func (r replicaResults) updates() table {
	t := table{Title: "rolling update"}
	for _, u := range r.Update {
		t.Columns = append(t.Columns, u.Name)
	}
	add := func(name string, figure func(replicas.Update) number) { t.add(name, eachOf(r.Update, figure)...) }
	add("ms until all replicas are replaced", func(u replicas.Update) number { return ms(samples(u.Took).median()) })
	add("the same, maximum", func(u replicas.Update) number { return ms(samples(u.Took).percentile(100)) })
	add("ms that a task does not run when it moves", func(u replicas.Update) number { return ms(samples(u.Gaps).median()) })
	add("the same, maximum", func(u replicas.Update) number { return ms(samples(u.Gaps).percentile(100)) })
	add("moves of a task, mean", func(u replicas.Update) number { return number(mean(u.Moves)) })
	add("the same, maximum", func(u replicas.Update) number { return count(slices.Max(u.Moves)) })
	return t
}

// fleets returns the table of big fleets.
func (r replicaResults) fleets() table {
	t := table{Title: "a big fleet"}
	for _, m := range r.Many {
		t.Columns = append(t.Columns, m.Name)
	}
	add := func(name string, figure func(replicas.Many) number) { t.add(name, eachOf(r.Many, figure)...) }
	add("ms of a cold start, until all tasks run", func(m replicas.Many) number { return ms(samples(m.ColdStart).median()) })
	add("the same, maximum", func(m replicas.Many) number { return ms(samples(m.ColdStart).percentile(100)) })
	add("ms until they are even", func(m replicas.Many) number { return ms(samples(m.Even).median()) })
	add("the same, maximum", func(m replicas.Many) number { return ms(samples(m.Even).percentile(100)) })
	add("starts of a task until then", func(m replicas.Many) number { return number(mean(m.Starts) / float64(m.Tasks)) })
	add("Syncs a second, steady", func(m replicas.Many) number { return number(m.Syncs) })
	add("% of a core: the leader", func(m replicas.Many) number { return number(100 * m.Leader) })
	add("% of a core: each other replica", func(m replicas.Many) number { return number(100 * m.Other) })
	add("% of a core: PostgreSQL", func(m replicas.Many) number { return number(100 * m.Server) })
	return t
}

// calls returns the tables of single calls.
func (r replicaResults) calls() []table {
	alone := table{Title: "one caller at a time"}
	for _, c := range r.Calls.Alone {
		alone.Columns = append(alone.Columns, fmt.Sprintf("%d members", c.Members))
	}
	add := func(name string, figure func(replicas.Call) number) {
		alone.add(name, eachOf(r.Calls.Alone, figure)...)
	}
	add("ms of a Sync", func(c replicas.Call) number { return ms(samples(c.Sync).median()) })
	add("ms of an update of one row", func(c replicas.Call) number { return ms(samples(c.Plain).median()) })
	add("a Sync, × the update", func(c replicas.Call) number { return number(ratio(samples(c.Sync), samples(c.Plain))) })

	together := table{Title: "all members at the same time, calls a second"}
	for _, c := range r.Calls.Together {
		together.Columns = append(together.Columns, fmt.Sprintf("%d members, %s", c.Members, c.Name))
	}
	rate := func(name string, figure func(replicas.Throughput) number) {
		together.add(name, eachOf(r.Calls.Together, figure)...)
	}
	rate("Syncs", func(c replicas.Throughput) number { return number(middle(slices.Clone(c.Sync))) })
	rate("updates of one row", func(c replicas.Throughput) number { return number(middle(slices.Clone(c.Plain))) })
	return []table{alone, together}
}

// mean returns the mean of numbers.
func mean(numbers []int) float64 {
	sum := 0
	for _, n := range numbers {
		sum += n
	}
	return float64(sum) / float64(max(1, len(numbers)))
}
