package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/recruit"
)

// Recruiting: the cost of a call that starts no job, beside the simplest way to
// count and to draw.

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

// each returns the time of one call.
func (e enlisting) each(s samples) string {
	return fmt.Sprintf("%.1f ns", float64(s.median())/float64(e.calls))
}

func (e enlisting) goals() []goal {
	took := e.enlist[0].median()
	return []goal{
		{"a call of Enlist that starts no job, on one core", e.each(e.enlist[0]), "under " + enlistGoal.String(), took < enlistGoal*time.Duration(e.calls)},
		{"the same: allocations", decimal(e.allocations), "none", e.allocations == 0},
	}
}

func (e enlisting) write(b *strings.Builder) {
	b.WriteString("\n## Recruiting\n\nA call that starts no job, through a function value, and the simplest equivalent: one shared counter and the\n" +
		"runtime's generator. On all cores, each core makes the same number of calls at the same time.\n\n")
	t := table{{"", "one core", "all cores"}}
	t.row("Enlist", e.each(e.enlist[0]), e.each(e.enlist[1]))
	t.row("one counter, the runtime's generator", e.each(e.plain[0]), e.each(e.plain[1]))
	b.WriteString(t.layout(true))
}
