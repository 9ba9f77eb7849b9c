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
	o      *orchestrator.Orchestrator[WorkerID, string] // it only looks; nil: nobody asks for terms
	cancel context.CancelFunc                           // ends o
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
		f.answer(&f.why, true)
		return
	}
	if l.follows != nil && (!asked || l.follows.epoch != l.e.head.Epoch) {
		l.stopFollowing()
	}
	switch w := l.follows; {
	case !asked:
	case w == nil:
		l.follows = &following{epoch: l.e.head.Epoch, c: &communicator{timeout: l.e.self.Lease / 3}}
		l.since, l.lastRead, l.reread = "", time.Time{}, now // everything is read next
	case w.c.d == nil: // not yet
	case terms && w.o == nil:
		l.beginLooking(ctx)
	case !terms:
		l.stopLooking()
	case w.o != nil:
		l.show(l.updateWorkers(w.c, w.o))
	}
}

// stopFollowing ends what answer has begun.
func (l *loop) stopFollowing() {
	if l.follows != nil {
		l.stopLooking()
		l.follows, l.since = nil, ""
	}
	l.r.fleet.answer(&l.r.fleet.who, false)
}

// followed records a View with Follow. A full one replaces what was known, because no other
// shows what was deleted.
func (l *loop) followed(v *View, now time.Time) {
	w, f := l.follows, &l.r.fleet
	if !v.Full && w.c.d == nil || v.Epoch != w.epoch {
		return
	}
	w.c.do(func(d *dispatch) {
		if v.Full {
			d = newDispatch(v, l.r.traits.Piecewise, now)
			d.count = epochStep - 1 // so that it believes the reports
			w.c.d = d
		}
		for _, o := range v.Orders {
			e := d.member(o.Member).entry(o.Task)
			e.Order, e.run = o, !o.Stop
			e.of.touch()
		}
		d.observe(v, now)
		f.update(d, l.e.observed.seen, now)
	})
	f.answer(&f.who, true)
	if v.Full && w.o != nil {
		l.show(l.updateTasksOf(w))
	}
}

// beginLooking begins terms that only look.
func (l *loop) beginLooking(ctx context.Context) {
	w, r := l.follows, l.r
	o, err := orchestrator.New(w.c, slices.Concat(r.s.orchestrator, []orchestrator.Option{orchestrator.WithEpoch(w.epoch)})...)
	if err != nil {
		l.show(err)
		return
	}
	o.OnTerm(r.fleet.onTerm)
	ctx, w.cancel = context.WithCancel(ctx)
	w.o = o
	l.show(errors.Join(l.updateWorkers(w.c, o), l.updateTasksOf(w)))
	r.parts.Go(func() {
		for ctx.Err() == nil {
			_ = o.Observe(ctx) // the snapshot has what failed
			r.mu.Lock()
			if ctx.Err() == nil {
				r.shown = o
				r.fleet.answer(&r.fleet.why, true)
			}
			r.mu.Unlock()
			backoff.Sleep(ctx, r.s.interval)
		}
	})
}

// show warns if the terms of a replica that does not lead cannot be shown.
func (l *loop) show(err error) {
	if err != nil {
		l.r.warn("fleet cannot be shown", "err", err)
	}
}

// stopLooking ends what beginLooking has begun.
func (l *loop) stopLooking() {
	if l.follows.o == nil {
		return
	}
	l.follows.cancel()
	l.follows.o = nil
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	l.r.shown = nil
	l.r.fleet.answer(&l.r.fleet.why, false)
}

// updateTasksOf passes the list in force on to the orchestrator that only looks.
func (l *loop) updateTasksOf(w *following) error {
	if !l.e.head.Listed {
		return nil
	}
	return w.o.UpdateTasks(expect(w.c.d.goal))
}
