//go:build peers

package main

// The library on a real etcd: a cold start, steady terms, changing contents, and
// workers that join and are lost, with the number of transactions and bytes of each.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
)

// etcdConfig selects what is measured on etcd, and how often.
type etcdConfig struct {
	size
	lease    time.Duration // of the members and the leader
	colds    int           // cold starts, each on a separate server
	steady   int           // steady terms
	contents int           // contents changed at a time
	events   int           // how often contents change, a worker joins and a worker is lost
}

// etcdContent is the length of each task's content in bytes.
const etcdContent = 100

// enoughTerms is the number of terms after which everything must run.
const enoughTerms = 10

// etcdResults holds the results.
type etcdResults struct {
	size
	contents int // changed at a time

	put, steadyTook       samples // a single write, in turn with a steady term
	cold, steady, changed []etcdCost
	joined, lost          []etcdCost
	largest               int // operations of the largest transaction
}

// etcdCost is the cost of one event.
type etcdCost struct {
	before time.Duration // until the leader knew of the event
	took   time.Duration // from then until everything had settled
	starts int
	traffic
}

func (e etcdCost) whole() time.Duration { return e.before + e.took }

// allRead returns the number of bytes that the leader and the workers have read.
func (e etcdCost) allRead() int { return e.read[leaders] + e.read[workers] }

// requests returns the number of their requests except those that begin a term.
func (e etcdCost) requests() int {
	n := 0
	for _, s := range []side{leaders, workers} {
		n += e.txns[s] + e.reads[s] + e.watches[s]
	}
	return n
}

func measureEtcd(ctx context.Context, cfg config) (etcdResults, error) {
	r := etcdResults{size: cfg.etcd.size, contents: cfg.etcd.contents}
	for i := range cfg.etcd.colds {
		if err := r.measureOnce(ctx, cfg, i == cfg.etcd.colds-1); err != nil {
			return r, fmt.Errorf("on etcd: %w", err)
		}
	}
	return r, nil
}

// measureOnce measures a cold start and, if more is true, the other events.
func (r *etcdResults) measureOnce(ctx context.Context, cfg config, more bool) (err error) {
	cfg.log("a cold start of %s on etcd", cfg.etcd.size)
	s, err := startEtcdCluster(ctx, cfg.etcd.lease)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	d := etcdDriver{etcdCluster: s, tasks: r.instances}
	if err := d.write(d.tasks, make([]byte, etcdContent)); err != nil {
		return fmt.Errorf("fill the registry: %w", err)
	}
	perform := func(what string, of *[]etcdCost, f func() error) error {
		if err := f(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		*of = append(*of, d.last)
		r.largest = max(r.largest, d.last.largest)
		return nil
	}
	if err := perform("cold start", &r.cold, func() error { return d.coldStart(r.workers) }); err != nil || !more {
		return err
	}
	cfg.log("steady terms, contents that change, workers that join and are lost, on etcd")
	client, err := d.connect(users)
	if err != nil {
		return err
	}
	for range cfg.etcd.steady { // in turn with a single write, the lower bound
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
		if err := perform("change contents", &r.changed, change); err != nil {
			return err
		}
		if err := perform("join", &r.joined, d.join); err != nil {
			return err
		}
		if err := perform("lose a worker", &r.lost, d.lose); err != nil {
			return err
		}
	}
	return nil
}

// etcdDriver causes events in a cluster, one after another.
type etcdDriver struct {
	*etcdCluster
	tasks   int
	members int
	updates int // number of contents changed
	*leadership
	last etcdCost
}

// coldStart makes all members start at the same time. The clock includes the joins,
// the election of the leader and the loading of the registry.
func (d *etcdDriver) coldStart(members int) error {
	d.counter.take()
	start := time.Now()
	for range members {
		if err := d.startMember(); err != nil {
			return err
		}
	}
	d.members = members
	var err error
	if d.leadership, err = d.lead(func(ctx context.Context, _ *orchestrator.Orchestrator[etcd.WorkerID, string]) error {
		<-ctx.Done() // the caller runs the terms
		return context.Cause(ctx)
	}); err != nil {
		return err
	}
	return d.settle(start)
}

// join makes one more member join.
func (d *etcdDriver) join() error {
	d.counter.take()
	start := time.Now()
	if err := d.startMember(); err != nil {
		return err
	}
	d.members++
	return d.settle(start)
}

// lose closes the etcd client of the member that joined last. Its tasks start
// elsewhere only after its lease has ended.
func (d *etcdDriver) lose() error {
	m := d.joined[len(d.joined)-1]
	d.counter.take()
	start := time.Now()
	if err := m.crash(); err != nil {
		return err
	}
	d.members--
	if err := d.settle(start); err != nil {
		return err
	}
	m.end()
	return nil
}

// change gives some tasks other content.
func (d *etcdDriver) change(contents int, to []byte) error {
	d.counter.take()
	start := time.Now()
	if err := d.write(contents, to); err != nil {
		return err
	}
	d.updates += contents
	return d.settle(start)
}

// settle waits until the leader knows all members, and runs terms until all tasks
// run with their contents. It records what that took.
func (d *etcdDriver) settle(start time.Time) error {
	if err := d.knownMembers.wait(d.ctx, d.members); err != nil {
		return err
	}
	e := etcdCost{before: time.Since(start)}
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
	if _, err := d.taskLog.wait(d.ctx, d.tasks, d.updates); err != nil {
		return err
	}
	e.took = time.Since(start)
	// Include the writes that remain after everything runs.
	if err := d.o.NextTerm(d.ctx); err != nil {
		return err
	}
	d.note(e)
	return nil
}

// put makes one write.
func (d *etcdDriver) put(client *clientv3.Client) (time.Duration, error) {
	start := time.Now()
	_, err := client.Put(d.ctx, "/measured", "x")
	return time.Since(start), err
}

// term runs a steady term.
func (d *etcdDriver) term() error {
	runtime.GC()
	d.counter.take()
	start := time.Now()
	if err := d.o.NextTerm(d.ctx); err != nil {
		return err
	}
	d.note(etcdCost{took: time.Since(start)})
	return nil
}

func (d *etcdDriver) note(e etcdCost) {
	e.traffic = d.counter.take()
	d.last = e
}

// The goals on etcd.
const (
	etcdColdGoal   = 10 * time.Second
	etcdSteadyGoal = 50 * time.Millisecond
	etcdOpsGoal    = 100
	// In a steady term only the term's number is written. The answer to that write,
	// and its event, take about a hundred bytes.
	etcdReadGoal = 200
)

func (r etcdResults) goals() []goal {
	of := "on etcd, " + r.String() + ": "
	return []goal{
		{
			What: of + "a cold start, from no members until everything runs", Op: "<", Limit: number(etcdColdGoal.Seconds()),
			Measured: number(medianOf(r.cold, etcdCost.whole).Seconds()), Unit: "s",
		},
		{What: of + "a steady term", Measured: ms(medianOf(r.steady, etcdCost.whole)), Op: "<", Limit: ms(etcdSteadyGoal), Unit: "ms"},
		{What: of + "operations in the largest transaction", Measured: count(r.largest), Op: "<=", Limit: etcdOpsGoal},
		{
			What: of + "bytes read in a steady term, all clients: the answer and event of one write", Op: "<", Limit: etcdReadGoal,
			Measured: count(medianOf(r.steady, etcdCost.allRead)), Unit: "bytes",
		},
		{What: of + "read requests in a steady term", Measured: count(medianOf(r.steady, etcdCost.requests)), Op: "<=", Limit: 0},
	}
}

func (r etcdResults) tables() []table {
	columns := [][]etcdCost{r.cold, r.steady, r.changed, r.joined, r.lost}
	t := table{
		Title:   r.String(),
		Columns: []string{"cold start", "steady term", fmt.Sprintf("%d contents change", r.contents), "one joins", "one lost"},
	}
	duration := func(name string, f func(etcdCost) time.Duration) {
		t.add(name, eachOf(columns, func(of []etcdCost) number { return ms(medianOf(of, f)) })...)
	}
	counted := func(name string, f func(etcdCost) int) {
		t.add(name, eachOf(columns, func(of []etcdCost) number { return count(medianOf(of, f)) })...)
	}
	duration("ms until known", func(e etcdCost) time.Duration { return e.before })
	duration("ms until done", func(e etcdCost) time.Duration { return e.took })
	counted("starts", func(e etcdCost) int { return e.starts })
	counted("terms, each begun by a transaction", func(e etcdCost) int { return e.begun })
	counted("other transactions of the leader", func(e etcdCost) int { return e.txns[leaders] })
	counted("transactions of the workers", func(e etcdCost) int { return e.txns[workers] })
	counted("operations in the largest transaction", func(e etcdCost) int { return e.largest })
	counted("read requests", func(e etcdCost) int { return e.reads[leaders] + e.reads[workers] })
	counted("watches started", func(e etcdCost) int { return e.watches[leaders] + e.watches[workers] })
	counted("bytes read by the leader", func(e etcdCost) int { return e.read[leaders] })
	counted("bytes written by the leader", func(e etcdCost) int { return e.written[leaders] })
	counted("bytes read by all workers", func(e etcdCost) int { return e.read[workers] })
	counted("bytes written by all workers", func(e etcdCost) int { return e.written[workers] })
	write := table{Title: "a single write, in turn with the steady terms", Columns: []string{"figure"}}
	write.add("ms", ms(r.put.median()))
	write.add("a steady term, × the write", number(ratio(r.steadyTook, r.put)))
	return []table{t, write}
}

// eachOf returns a figure of each column.
func eachOf[C any](columns []C, figure func(C) number) []number {
	figures := make([]number, len(columns))
	for i, c := range columns {
		figures[i] = figure(c)
	}
	return figures
}

// medianOf returns the median of a figure over several events.
func medianOf[E any, N int | time.Duration](of []E, figure func(E) N) N {
	figures := make([]N, len(of))
	for i, e := range of {
		figures[i] = figure(e)
	}
	return middle(figures)
}
