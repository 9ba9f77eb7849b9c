//go:build peers

package main

// Recruiting: the cost of a call that starts no job, beside the simplest way to
// count and to draw.

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/recruit"
)

// enlistGoal is the limit for such a call.
const enlistGoal = 15 * time.Nanosecond

// enlisting holds the times of a number of calls on one core, and of as many on each
// core at the same time.
type enlisting struct {
	calls       int
	enlist      [2]samples
	plain       [2]samples // one atomic counter, and the runtime's generator
	allocations float64
}

func measureEnlist(ctx context.Context, cfg config) (enlisting, error) {
	e := enlisting{calls: 1_000_000}
	if cfg.quick {
		e.calls = 10_000
	}
	cfg.log("recruiting")
	r, err := recruit.New()
	if err != nil {
		return e, err
	}
	job := recruit.JobFunc(func(context.Context) error { return errors.New("no job should have started") })
	if err := r.Install("almost never", 1e-11, job); err != nil {
		return e, err
	}
	var n, drawn atomic.Uint64
	enlist := func() { r.Enlist(ctx) }
	plain := func() {
		n.Add(1)
		if rand.Uint64()>>24 < 11 {
			drawn.Add(1)
		}
	}
	times, err := race(cfg.rounds, []entrant{
		e.entrant("enlist", 1, enlist), e.entrant("enlist on all cores", runtime.GOMAXPROCS(0), enlist),
		e.entrant("count and draw", 1, plain), e.entrant("count and draw on all cores", runtime.GOMAXPROCS(0), plain),
	})
	if err != nil {
		return e, err
	}
	e.enlist, e.plain = [2]samples(times[:2]), [2]samples(times[2:])
	e.allocations = testing.AllocsPerRun(1000, enlist)
	return e, nil
}

// entrant makes the calls on each of a number of cores.
func (e enlisting) entrant(name string, cores int, call func()) entrant {
	return entrant{name: name, warm: true, run: func() error {
		var wg sync.WaitGroup
		for range cores {
			wg.Go(func() {
				for range e.calls {
					call()
				}
			})
		}
		wg.Wait()
		return nil
	}}
}

// each returns the nanoseconds of one call.
func (e enlisting) each(s samples) number { return number(float64(s.median()) / float64(e.calls)) }

func (e enlisting) goals() []goal {
	return []goal{
		{
			What: "a call of Enlist that starts no job, on one core", Op: "<", Limit: number(enlistGoal),
			Measured: e.each(e.enlist[0]), Unit: "ns",
		},
		{What: "allocations of such a call", Measured: number(e.allocations), Op: "<=", Limit: 0},
	}
}

func (e enlisting) tables() []table {
	t := table{Title: "ns for a call that starts no job", Columns: []string{"one core", "all cores"}}
	t.add("Enlist", e.each(e.enlist[0]), e.each(e.enlist[1]))
	t.add("one counter, the runtime's generator", e.each(e.plain[0]), e.each(e.plain[1]))
	return []table{t}
}
