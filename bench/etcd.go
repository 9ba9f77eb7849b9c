package main

// The library on a real etcd: a cold start, steady terms, contents that change,
// a worker that joins and one that is lost, and what that costs in
// transactions and bytes.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

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
	o       *orchestrator.Orchestrator[etcd.Worker, string]
	last    episode
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
	if d.o, err = d.lead(); err != nil {
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
	if err := d.ledger.wait(d.ctx, d.tasks, d.updates); err != nil {
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
