package replica

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/backoff"
)

// following is what a replica that does not lead knows of all others while somebody asks.
type following struct {
	c      *communicator
	epoch  uint64                                       // that of the table
	known  bool                                         // everything was read since somebody asks
	missed bool                                         // an order to stop was not seen before it was deleted
	o      *orchestrator.Orchestrator[WorkerID, string] // it only looks; nil: nobody has asked for terms
	cancel context.CancelFunc                           // ends its terms; nil: nobody asks for them
}

// answer begins and ends to follow the table, as it is asked for.
func (l *loop) answer(ctx context.Context, now time.Time) {
	f := &l.r.fleet
	terms := l.joined && f.isAsked(&f.why, now)
	asked := terms || l.joined && f.isAsked(&f.who, now)
	if l.lead != nil {
		if asked {
			l.lead.c.do(func(d *dispatch) { f.update(d, l.e.observed.seen, now) })
		}
		f.answer(&f.who, asked)
		return
	}
	if l.follows != nil && (!asked || l.follows.epoch != l.e.head.Epoch) {
		l.stopFollowing()
	}
	switch w := l.follows; {
	case !asked:
	case w == nil:
		if l.follows = l.followed; l.follows == nil || l.follows.epoch != l.e.head.Epoch {
			l.follows = &following{epoch: l.e.head.Epoch, c: &communicator{timeout: l.e.self.Lease / 3}}
		}
		l.since, l.lastRead, l.reread = "", time.Time{}, now // everything is read next
	case !w.known:
	case !terms:
		l.stopLooking()
	case w.cancel == nil:
		l.beginLooking(ctx)
	default:
		l.show(l.updateWorkers(w.c, w.o))
	}
}

// stopFollowing ends what answer has begun.
func (l *loop) stopFollowing() {
	if l.follows != nil {
		l.stopLooking()
		l.follows.known = false
		l.followed, l.follows, l.since = l.follows, nil, "" // its terms go on if somebody asks again
	}
	l.r.fleet.answer(&l.r.fleet.who, false)
}

// see records a View with Follow. A full one replaces what was known, because no other shows what
// was deleted. It is read soon if a task is new, or has an order to run for which there is no room:
// then an order to stop was written and deleted between two reads.
func (l *loop) see(v *View, now time.Time) {
	w, f := l.follows, &l.r.fleet
	if !v.Full && !w.known || v.Epoch != w.epoch {
		return
	}
	w.c.do(func(d *dispatch) {
		was, orders := d, v.Orders
		if v.Full {
			d = newDispatch(v, l.r.traits.Piecewise, now)
			d.count = max(d.epoch+epochStep, MaxSeen) - 1 - d.epoch // so that it believes the reports, also after a loss
			w.c.d, w.known, w.missed, orders = d, true, false, nil
		}
		for _, o := range orders {
			e := d.member(o.Member).entry(o.Task)
			e.Order, e.run = o, !o.Stop
			e.of.touch()
		}
		d.observe(v, now)
		for _, o := range orders {
			_, listed := d.goal[o.Task]
			w.missed = w.missed || !o.Stop && (!listed || !d.hasRoom(d.members[o.Member].orders[o.Task]))
		}
		if was != d && was != nil {
			d.keepSilent(was)
		}
		f.update(d, l.e.observed.seen, now)
	})
	f.answer(&f.who, true)
	if v.Full && w.cancel != nil {
		l.show(l.updateTasksOf(w))
	}
}

// beginLooking begins terms that only look. They pause while the table cannot be read.
func (l *loop) beginLooking(ctx context.Context) {
	w, r := l.follows, l.r
	if w.o == nil {
		o, err := orchestrator.New(w.c, slices.Concat(r.s.orchestrator, []orchestrator.Option{orchestrator.WithEpoch(w.epoch), orchestrator.WithInitialWait(0)})...)
		if err != nil {
			l.show(err)
			return
		}
		w.o = o
	}
	ctx, w.cancel = context.WithCancel(ctx)
	l.show(errors.Join(l.updateWorkers(w.c, w.o), l.updateTasksOf(w)))
	stop := r.showTerms(ctx, w.o)
	r.parts.Go(func() {
		defer stop()
		for ctx.Err() == nil {
			if r.Status().Err == "" {
				_ = w.o.Observe(ctx) // the snapshot has what failed
			}
			backoff.Sleep(ctx, r.s.interval)
		}
	})
}

// showTerms shows the terms of an orchestrator, until ctx ends.
func (r *Replica) showTerms(ctx context.Context, o *orchestrator.Orchestrator[WorkerID, string]) (stop func()) {
	return o.OnTerm(func(s *orchestrator.Snapshot[WorkerID, string]) {
		r.mu.Lock()
		shown := ctx.Err() == nil
		if shown {
			r.o = o
			r.fleet.answer(&r.fleet.why, true)
		}
		r.mu.Unlock()
		if shown || !s.Plan().Stats.Observed {
			r.fleet.onTerm(s)
		}
	})
}

// hideTerms ends what showTerms has begun, after its ctx.
func (r *Replica) hideTerms() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.o = nil
	r.fleet.answer(&r.fleet.why, false)
}

// show warns if the terms of a replica that does not lead cannot be shown.
func (l *loop) show(err error) {
	if err != nil {
		l.r.warn("fleet cannot be shown", "err", err)
	}
}

// stopLooking ends what beginLooking has begun.
func (l *loop) stopLooking() {
	if w := l.follows; w.cancel != nil {
		w.cancel()
		w.cancel = nil
		l.r.hideTerms()
	}
}

// updateTasksOf passes the list in force on to the orchestrator that only looks.
func (l *loop) updateTasksOf(w *following) error {
	if !l.e.head.Listed {
		return nil
	}
	return w.o.UpdateTasks(expect(w.c.d.goal))
}
