package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// leadership is one period of leading: an orchestrator over the table.
type leadership struct {
	c      *communicator
	o      *orchestrator.Orchestrator[WorkerID, string] // nil in Lead
	list   list
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when err is valid
	err    error         // why the orchestrator has ended

	compared uint64 // the number of the answer that was compared since everything was read; 0: none
}

// beginLeading reads everything and starts an orchestrator (O6), which begins once the former
// one has ended.
func (l *loop) beginLeading(ctx context.Context) error {
	v, err := l.read(ctx, Query{Self: l.e.self.ID, Server: l.e.head.Server, Beats: true, Follow: true})
	if err != nil || !l.e.elected() || !v.Full {
		l.lastSync, l.since = time.Time{}, "" // it is not what it was
		return err
	}
	now := time.Now()
	lead := &leadership{done: make(chan struct{}), c: &communicator{
		d: newDispatch(&v, l.r.traits.Piecewise, now), wake: l.r.wake, timeout: l.e.self.Lease / 3,
	}}
	if !l.r.s.lead {
		lead.o, err = orchestrator.New(lead.c, slices.Concat(l.r.s.orchestrator, []orchestrator.Option{orchestrator.WithEpoch(v.Epoch)})...)
	}
	if err != nil {
		return fmt.Errorf("lead epoch %d: %w", v.Epoch, err)
	}
	l.stopFollowing()
	l.reread, l.since = now, v.Revision
	l.e.leads, l.e.led, l.e.vacant = true, v.Epoch, time.Time{}
	l.r.led.Store(v.Epoch)
	leading, stop := context.WithCancelCause(context.WithoutCancel(ctx)) // stopLeading ends it, with ErrDeposed
	lead.cancel, l.lead = stop, lead
	l.counters.Elections++
	l.r.log.Info("leads", "epoch", v.Epoch, "members", len(v.Members), "tasks", len(v.Tasks))
	if l.updateLeadership(now); lead.o != nil {
		l.runTerms(leading, lead)
	}
	return nil
}

// runTerms starts the orchestrator of a leadership, once the former one has ended.
func (l *loop) runTerms(leading context.Context, lead *leadership) {
	l.r.showTerms(leading, lead.o)
	l.r.parts.Go(func() { // the loop may wait for the backend
		select {
		case <-l.r.worker.LeaseLost():
			lead.cancel(orchestrator.ErrDeposed)
		case <-leading.Done():
		}
	})
	former := l.former
	l.r.parts.Go(func() {
		<-former
		ended := l.r.s.leading(lead.o)
		lead.err = lead.o.Run(leading, l.r.s.interval)
		if ended != nil {
			ended()
		}
		lead.cancel(lead.err)
		close(lead.done)
		l.r.wake()
	})
}

// stopLeading ends the leadership, if there is one.
func (l *loop) stopLeading(reason string) {
	if l.lead == nil {
		return
	}
	l.lead.cancel(orchestrator.ErrDeposed)
	l.r.log.Info("leads no longer", "epoch", l.e.led, "reason", reason)
	l.former, l.lead, l.e.leads, l.e.campaigned, l.since = l.lead.done, nil, false, time.Now(), ""
	l.r.fleet.answer(&l.r.fleet.who, false)
	l.r.hideTerms()
	if l.r.s.lead && !l.e.self.Draining { // a lost leadership ends the life, so lead has to return in time
		l.called = fmt.Errorf("%w: %s", orchestrator.ErrDeposed, reason)
		l.r.worker.EndLease(orchestrator.ErrDeposed)
	}
}

// checkLeadership ends a leadership that has ended.
func (l *loop) checkLeadership() {
	if l.lead == nil {
		return
	}
	reason := l.e.deposed()
	select {
	case <-l.lead.done:
		reason = fmt.Sprint("its orchestrator has ended: ", l.lead.err)
	default:
	}
	if reason != "" {
		l.stopLeading(reason)
	}
}

// next returns the batch to write, or nil; see dispatch.next.
func (l *loop) next(now time.Time, sync bool) (b *Batch) {
	if l.lead != nil && !l.unanswered { // the Sync after a failed one carries none (B5)
		l.lead.c.do(func(d *dispatch) { b = d.next(l.e.evict(now), sync) })
	}
	return b
}

// answered records the answer to a Sync with a batch.
func (l *loop) answered(u *Update, v *View, err error, now time.Time) {
	l.lead.c.do(func(d *dispatch) {
		switch {
		case err == nil && v.Server == u.Server && v.Epoch == l.e.led && v.Leader == u.Self:
			d.stored(now)
			l.hurry = now.Add(time.Second)
		case err == nil: // the View says why
		case !errors.Is(err, orchestrator.ErrRejected):
			d.unsure = true
		case d.unsure: // an earlier Sync with it may have been stored
			l.stopLeading("the backend refuses a batch that it may have written")
		default:
			if left := d.refuse(err); left != "" {
				l.r.warn("backend refuses a record, it is left out", "record", left, "err", err)
			}
		}
	})
}

// updateWorkers passes the members on to an orchestrator.
func (l *loop) updateWorkers(c *communicator, o *orchestrator.Orchestrator[WorkerID, string]) error {
	var workers []orchestrator.Worker[WorkerID]
	c.do(func(d *dispatch) {
		for id, s := range l.e.observed.seen {
			missing := !s.missing.IsZero()
			if m := d.members[id]; missing && (m == nil || len(m.orders)+len(m.also) == 0) { // it may run nothing (B6)
				delete(d.members, id)
				continue
			}
			m, settings := d.member(id), s.member.Settings
			m.held = s.isSilent()
			if settings.Check() != nil || missing {
				settings = orchestrator.WorkerSettings{}
			}
			hosted := settings // each process of the name has another ID
			if hosted.Host = cmp.Or(settings.Host, s.member.Name); hosted.Check() == nil {
				settings = hosted
			}
			if missing || s.member.Role.works() {
				workers = append(workers, orchestrator.NewWorker(WorkerID{s.member.Name, id}, s.member.Draining && !missing, settings))
			}
		}
	})
	slices.SortFunc(workers, func(a, b orchestrator.Worker[WorkerID]) int { return cmp.Compare(a.Name.ID, b.Name.ID) })
	return o.UpdateWorkers(workers)
}

// updateLeadership passes members and tasks on to the orchestrator.
func (l *loop) updateLeadership(now time.Time) {
	lead := l.lead
	if lead.o == nil {
		l.orderLead()
		return
	}
	if err := l.updateWorkers(lead.c, lead.o); err != nil {
		lead.cancel(err)
	}
	for _, w := range lead.o.LastPlan().Waiting {
		if w.Causes != nil && w.Kind() == orchestrator.WaitingUnplaced {
			l.r.warn("task has no place on any replica", "task", w.Task, "causes", *w.Causes)
			break
		}
	}
	l.updateTasks(now)
}

// updateTasks compares the Source's answer with the list in force, and serves the list
// once it is listed (A7).
func (l *loop) updateTasks(now time.Time) {
	lead := l.lead
	answer, n, _, _ := l.r.source.state()
	var expected []orchestrator.Task[string] // nil: the orchestrator has them
	lead.c.do(func(d *dispatch) {
		if n > 0 && (n != lead.compared || lead.list.isDue(now)) {
			if lead.compared == 0 {
				clear(d.rejected) // what the table has refused is tried again
			}
			braked := len(lead.list.lacking)
			goal := lead.list.compare(d.goal, answer, now)
			lead.compared, d.toList = n, !l.e.head.Listed
			l.warnOfRows(braked, len(d.goal))
			d.setGoal(goal)
			maps.Copy(lead.list.bad, d.rejected)
		}
		if l.e.head.Listed && !d.served {
			d.served, expected = true, expect(d.goal)
		}
	})
	if expected != nil {
		if err := lead.o.UpdateTasks(expected); err != nil {
			lead.cancel(fmt.Errorf("update tasks: %w", err))
		}
	}
}

// expect returns the list in force for the orchestrator.
func expect(goal map[string]Task) []orchestrator.Task[string] {
	expected := make([]orchestrator.Task[string], 0, len(goal))
	for _, name := range slices.Sorted(maps.Keys(goal)) {
		if t := goal[name]; t.problem() == "" {
			expected = append(expected, orchestrator.NewTask(name, t.settings()))
		}
	}
	return expected
}

// warnOfRows logs bad rows once a minute, and the brake when it begins and ends.
func (l *loop) warnOfRows(braked, inForce int) {
	list := &l.lead.list
	if bad := slices.Sorted(maps.Keys(list.bad)); len(bad) > 0 {
		l.r.warn("source has bad rows, their tasks stay as they were", "rows", len(bad), "first", bad[0], "reason", list.bad[bad[0]])
	}
	if kept := len(list.lacking); kept > 0 && braked == 0 {
		l.r.warn("source lacks most tasks, they stay for a minute", "lacking", kept, "tasks", inForce)
	} else if kept == 0 && braked > 0 {
		l.r.warn("brake on missing tasks ended", "kept", braked)
	}
}
