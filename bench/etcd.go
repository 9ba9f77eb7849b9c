package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The library on a real etcd: a cold start, steady terms, contents that change,
// a worker that joins and one that is lost, and what that costs in
// transactions and bytes.

// etcdConfig is what is measured on etcd, and how often.
type etcdConfig struct {
	size
	lease    time.Duration // of the members and the leader
	colds    int           // cold starts, each on a server of its own
	steady   int           // steady terms
	contents int           // contents that change
	events   int           // how often they do, and a worker joins, and one is lost
}

// etcdContent is how many bytes each task's content has.
const etcdContent = 100

// enoughTerms is after how many terms everything has to be in place.
const enoughTerms = 10

// onEtcd is what was measured.
type onEtcd struct {
	size
	revision   string
	start, end time.Time

	put, steadyTook       samples // one write, alone, and in turn a steady term
	cold, steady, changed []episode
	joined, lost          []episode
	largest               int // operations of the largest transaction of all
}

// episode is one thing that happened, and what it took.
type episode struct {
	before time.Duration // until the leader knew what there was to do
	took   time.Duration // from then on, until everything was as it should be
	starts int
	traffic
}

func (e episode) whole() time.Duration { return e.before + e.took }

// allRead is how many bytes the leader and the workers have read.
func (e episode) allRead() int { return e.read[leaders] + e.read[workers] }

// requests is how many they have made besides those that begin a term.
func (e episode) requests() int {
	n := 0
	for _, s := range []side{leaders, workers} {
		n += e.txns[s] + e.reads[s] + e.watches[s]
	}
	return n
}

func measureEtcd(ctx context.Context, cfg config) (onEtcd, error) {
	r := onEtcd{size: cfg.etcd.size, revision: revision(ctx), start: time.Now()}
	for i := range cfg.etcd.colds {
		if err := r.play(ctx, cfg, i == cfg.etcd.colds-1); err != nil {
			return r, fmt.Errorf("on etcd: %w", err)
		}
	}
	r.end = time.Now()
	return r, nil
}

// play is a cold start and, if it goes on, what comes after.
func (r *onEtcd) play(ctx context.Context, cfg config, goesOn bool) (err error) {
	cfg.log("a cold start of %s on etcd", cfg.etcd.size)
	s, err := startStage(ctx, cfg.etcd.lease)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	d := director{stage: s, tasks: r.instances}
	if err := d.write(d.tasks, make([]byte, etcdContent)); err != nil {
		return fmt.Errorf("fill the registry: %w", err)
	}
	perform := func(what string, of *[]episode, f func() error) error {
		if err := f(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		*of = append(*of, d.last)
		r.largest = max(r.largest, d.last.largest)
		return nil
	}
	if err := perform("cold start", &r.cold, func() error { return d.coldStart(r.workers) }); err != nil || !goesOn {
		return err
	}
	cfg.log("steady terms, contents that change, workers that join and are lost, on etcd")
	client, err := d.connect(users)
	if err != nil {
		return err
	}
	for range cfg.etcd.steady { // in turn with the least that it could take
		took, err := d.put(client)
		if err != nil {
			return err
		}
		r.put = append(r.put, took)
		if err := perform("a steady term", &r.steady, d.term); err != nil {
			return err
		}
		r.steadyTook = append(r.steadyTook, d.last.took)
	}
	for i := range cfg.etcd.events {
		content := bytes.Repeat([]byte{byte(i + 1)}, etcdContent)
		change := func() error { return d.change(cfg.etcd.contents, content) }
		if err := perform("contents change", &r.changed, change); err != nil {
			return err
		}
		if err := perform("one joins", &r.joined, d.join); err != nil {
			return err
		}
		if err := perform("one is lost", &r.lost, d.lose); err != nil {
			return err
		}
	}
	return nil
}

// director has things happen on a stage, one after the other.
type director struct {
	*stage
	tasks   int
	members int
	updates int // contents that were changed
	*leadership
	last episode
}

// coldStart has everybody start at once: the clock runs while the members join,
// and while the leader is elected and loads the registry.
func (d *director) coldStart(members int) error {
	d.counter.take()
	start := time.Now()
	for range members {
		if err := d.hire(); err != nil {
			return err
		}
	}
	d.members = members
	var err error
	if d.leadership, err = d.lead(func(ctx context.Context, _ *orchestrator.Orchestrator[etcd.Worker, string]) error {
		<-ctx.Done() // the director runs the terms
		return context.Cause(ctx)
	}); err != nil {
		return err
	}
	return d.settle(start)
}

// join has one more join.
func (d *director) join() error {
	d.counter.take()
	start := time.Now()
	if err := d.hire(); err != nil {
		return err
	}
	d.members++
	return d.settle(start)
}

// lose takes etcd away from the last that joined. Nothing is started elsewhere
// before its lease has ended.
func (d *director) lose() error {
	m := d.crew[len(d.crew)-1]
	d.counter.take()
	start := time.Now()
	if err := m.crash(); err != nil {
		return err
	}
	d.members--
	if err := d.settle(start); err != nil {
		return err
	}
	m.bury()
	return nil
}

// change gives some tasks another content.
func (d *director) change(contents int, to []byte) error {
	d.counter.take()
	start := time.Now()
	if err := d.write(contents, to); err != nil {
		return err
	}
	d.updates += contents
	return d.settle(start)
}

// settle has terms run, from when the leader knows all members, until
// everything runs where it is to and has its content, and notes what that took.
func (d *director) settle(start time.Time) error {
	if err := d.told.wait(d.ctx, d.members); err != nil {
		return err
	}
	e := episode{before: time.Since(start)}
	start = time.Now()
	for terms := 1; ; terms++ {
		err := d.o.NextTerm(d.ctx)
		stats := d.o.LastPlan().Stats
		e.starts += stats.Adds
		if err == nil && stats.Instances.Running == d.tasks && stats.Spread <= 1 {
			break
		}
		if terms == enoughTerms || d.ctx.Err() != nil {
			return fmt.Errorf("not done after %d terms: %w", terms, errors.Join(err, context.Cause(d.ctx)))
		}
	}
	if _, err := d.ledger.wait(d.ctx, d.tasks, d.updates); err != nil {
		return err
	}
	e.took = time.Since(start)
	// What is written when nobody waits for it any more is part of it too.
	if err := d.o.NextTerm(d.ctx); err != nil {
		return err
	}
	d.note(e)
	return nil
}

// put makes one write.
func (d *director) put(client *clientv3.Client) (time.Duration, error) {
	start := time.Now()
	_, err := client.Put(d.ctx, "/measured", "x")
	return time.Since(start), err
}

// term is a steady one.
func (d *director) term() error {
	runtime.GC()
	d.counter.take()
	start := time.Now()
	if err := d.o.NextTerm(d.ctx); err != nil {
		return err
	}
	d.note(episode{took: time.Since(start)})
	return nil
}

func (d *director) note(e episode) {
	e.traffic = d.counter.take()
	d.last = e
}

// The part of the report about etcd, and its goals.

// What the figures on etcd are held against.
const (
	etcdColdGoal   = 10 * time.Second
	etcdSteadyGoal = 50 * time.Millisecond
	etcdOpsGoal    = 100
	// In a steady term nothing changes but its number. The answer to that one
	// write, and its event, take about a hundred bytes.
	etcdReadGoal = 200
)

// partOnEtcd is the part about etcd.
var partOnEtcd = part{head: "## On etcd", goal: "on etcd, "}

func (r onEtcd) goals() []goal {
	cold, steady := medianOf(r.cold, episode.whole), medianOf(r.steady, episode.whole)
	read, requests := medianOf(r.steady, episode.allRead), medianOf(r.steady, episode.requests)
	return []goal{
		{
			partOnEtcd.goal + r.String() + ": a cold start, from nobody there until everything runs",
			seconds(cold), "under " + seconds(etcdColdGoal), cold < etcdColdGoal,
		},
		{
			partOnEtcd.goal + "the same: a steady term",
			millis(steady) + " ms", "under " + decimal(float64(etcdSteadyGoal.Milliseconds())) + " ms", steady < etcdSteadyGoal,
		},
		{
			partOnEtcd.goal + "the same: operations in the largest transaction",
			grouped(r.largest), fmt.Sprintf("at most %d", etcdOpsGoal), r.largest <= etcdOpsGoal,
		},
		{
			partOnEtcd.goal + "the same: read in a steady term, by all",
			fmt.Sprintf("%s bytes, asked for by %d requests", grouped(read), requests),
			fmt.Sprintf("its one write's answer and event: under %d bytes, by none", etcdReadGoal),
			read < etcdReadGoal && requests == 0,
		},
	}
}

const etcdHead = `
## On etcd

%s, one instance each, contents of %d bytes, on one embedded etcd, %s, that syncs every write to the disk, in a
temporary folder. All in one process: the server, a leader, and the members, each with a client of its own.
Measured at commit %s, %s, in %s. One write, alone, in turn with the steady terms, took %s ms; a steady term takes %s times as
long, since it makes one.

`

// etcdFoot takes the numbers of cold starts, steady terms and events, and the
// length of the lease.
const etcdFoot = `
Medians of %d cold starts, each on a new server, %d steady terms, and %d times that contents change, one joins and one is
lost.

- **Until it is known**: in a cold start, that all members have joined and that the leader, elected at the same time, has
  loaded the registry; that contents are written; that the leader knows of a new member; and that the lease, of %s, has
  ended of one that was cut off from etcd. It has stopped its tasks by then, by itself.
- **Until all is done** goes on from there, in as many terms as it takes, one of which finds nothing to do: until each task has
  been claimed and its function called, and contents have reached theirs. That no task runs twice is checked all the while.
- **Transactions** of workers are claims, what is written when a task has started or stopped, and loads. One worker's wait for
  each other, and each takes along what has come up since. An operation is a comparison, a read or a write, in any branch.
- **Requests to read** are those that are no transactions: of registry and membership when somebody joins or is elected, and of one key
  by each watch that has heard nothing for five seconds. Those make up what is read while a lease runs out.
- **Bytes** are those of gRPC messages, watches included, keepalives of leases not.
`

func (r onEtcd) write(b *strings.Builder, cfg etcdConfig) {
	fmt.Fprintf(b, etcdHead, r.size, etcdContent, version(etcdServer), r.revision, r.start.UTC().Format(time.DateOnly),
		r.end.Sub(r.start).Round(time.Second), millis(r.put.median()), decimal(ratio(r.steadyTook, r.put)))
	columns := [][]episode{r.cold, r.steady, r.changed, r.joined, r.lost}
	t := table{{"", "cold start", "steady term", fmt.Sprintf("%d contents change", cfg.contents), "one joins", "one lost"}}
	row := func(name string, cell func([]episode) string) {
		cells := []string{name}
		for _, episodes := range columns {
			cells = append(cells, cell(episodes))
		}
		t.row(cells...)
	}
	duration := func(name string, f func(episode) time.Duration) {
		row(name, func(of []episode) string { return millis(medianOf(of, f)) })
	}
	number := func(name string, f func(episode) int) {
		row(name, func(of []episode) string { return grouped(medianOf(of, f)) })
	}
	duration("ms until it is known", func(e episode) time.Duration { return e.before })
	duration("ms until all is done", func(e episode) time.Duration { return e.took })
	number("starts", func(e episode) int { return e.starts })
	number("terms, each begun by a transaction", func(e episode) int { return e.begun })
	number("other transactions of the leader", func(e episode) int { return e.txns[leaders] })
	number("transactions of the workers", func(e episode) int { return e.txns[workers] })
	number("operations in the largest", func(e episode) int { return e.largest })
	number("requests to read", func(e episode) int { return e.reads[leaders] + e.reads[workers] })
	number("watches begun", func(e episode) int { return e.watches[leaders] + e.watches[workers] })
	number("bytes read by the leader", func(e episode) int { return e.read[leaders] })
	number("bytes written by the leader", func(e episode) int { return e.written[leaders] })
	number("bytes read by all workers", func(e episode) int { return e.read[workers] })
	number("bytes written by all workers", func(e episode) int { return e.written[workers] })
	b.WriteString(t.layout(true))
	fmt.Fprintf(b, etcdFoot, cfg.colds, cfg.steady, cfg.events, cfg.lease)
}

// medianOf is the median of a figure of some episodes.
func medianOf[E any, N int | time.Duration](of []E, figure func(E) N) N {
	figures := make([]N, len(of))
	for i, e := range of {
		figures[i] = figure(e)
	}
	return middle(figures)
}

func seconds(d time.Duration) string { return decimal(d.Round(10*time.Millisecond).Seconds()) + " s" }
