package replica

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"slices"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/panics"
)

// leadTask is the only task in a table of [Lead]. A leader orders it for itself, so that the
// rules for tasks hold for the function that leads.
const leadTask = "lead"

var errGoexit = errors.New("lead called runtime.Goexit")

// Lead elects one of several equal processes, and calls lead in the one that was elected. It is
// for an orchestrator of your own over your own transport:
//
//	err := replica.Lead(ctx, table, func(ctx context.Context, epoch uint64) error {
//		o, err := orchestrator.New(transport, orchestrator.WithEpoch(epoch))
//		…
//		return o.Run(ctx, time.Second)
//	})
//
// Every process calls Lead with the same table, which must have no other use. Each leadership begins
// with a new orchestrator: add every worker that may run tasks before its first term, or give workers
// that register themselves time with orchestrator.WithInitialWait.
//
// lead is called once for each leadership. Its epoch is above those of all earlier ones, as long as
// the table loses no data. Its ctx ends when ctx ends, and with the cause orchestrator.ErrDeposed
// when the leadership is lost: before the lease can end, and before another process can lead. lead must then return within the
// time to stop of [WithLease], 2 s by default. Afterwards Lead campaigns again, whatever lead has
// returned. An orchestrator's Run returns at once, unless calls ignore their context.
//
// If lead returns before its ctx ends, also with nil, or panics, Lead resigns and returns that
// error. When ctx ends, Lead waits for lead, resigns, and returns the error of lead, but nil if
// that wraps the cause of ctx. After a resignation another process leads as soon as it has read
// the table; it waits for no lease.
//
// Calls of lead never overlap, in all processes, as long as each returns in that time. If one does not, the log names the task "lead", and the function of [WithLastResort] is
// called in time, which by default ends the process with code 3. A leader that dies is replaced after
// about one lease ([WithLease]). An outage of the table ends a leadership only if it outlasts the lease.
//
// A lease does not stop a process that stands still between a check and a write. The epoch does,
// if what is written refuses a lower one, as workers do with an orchestrator's terms.
//
// The options are [WithName], [WithService], [WithLease], [WithAttributes], [WithLogger] and
// [WithLastResort]. Others, a nil backend and a nil lead are errors that wrap [ErrInvalid] and
// name all that is wrong. The error wraps [ErrForeign] if the table belongs to another service
// or to replicas that run tasks. If the backend is an io.Closer, Lead closes it.
func Lead(ctx context.Context, b Backend, lead func(ctx context.Context, epoch uint64) error, opts ...Option) error {
	stop, resign := context.WithCancel(ctx)
	defer resign()
	var r *Replica
	var result error // set before resign
	r, err := New(b, Names(), func(run context.Context, _ string) error {
		defer func() { <-run.Done() }() // otherwise it is called again
		if stop.Err() != nil {
			return nil
		}
		leading, end := context.WithCancelCause(ctx)
		defer end(nil)
		defer context.AfterFunc(run, func() { end(cmp.Or(context.Cause(ctx), orchestrator.ErrDeposed)) })()
		if err := r.callLead(leading, lead); leading.Err() == nil || ctx.Err() != nil {
			result = err
			resign()
		}
		return nil
	}, append(slices.Clip(opts), forLead(lead == nil))...)
	if err != nil {
		return err
	}
	err = r.Run(stop)
	return cmp.Or(result, err)
}

// forLead makes a replica without tasks.
func forLead(isNil bool) Option {
	return func(s *settings) {
		s.refuse(isNil, "lead is nil")
		for _, name := range s.ofTasks {
			s.refuse(true, "%s: Lead runs no tasks", name)
		}
		if s.lead, s.self.Role = true, CandidateOnly; s.self.Service != "" {
			s.self.Service += " (Lead)" // replicas that run tasks need another kind of leader
		}
	}
}

// callLead calls lead. The error is nil if it wraps the cause with which ctx has ended.
func (r *Replica) callLead(ctx context.Context, lead func(context.Context, uint64) error) error {
	epoch, ended := r.led.Load(), make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() {
			if v := recover(); v != nil {
				err = panics.Error(v)
				r.log.Error("lead panicked", "err", err, "stack", string(debug.Stack()))
			}
			ended <- err
		}()
		err = lead(ctx, epoch)
	}()
	err := <-ended
	if ctx.Err() != nil && (errors.Is(err, context.Cause(ctx)) || errors.Is(err, ctx.Err())) {
		err = nil
	}
	r.log.Info("lead has returned", "epoch", epoch, "err", err)
	return err
}

// orderLead orders lead for the leader itself, and for other members to stop it. O3 keeps the
// former back until no other member may run it.
func (l *loop) orderLead() {
	l.lead.c.do(func(d *dispatch) {
		d.unlisted = false // the task has no Source and no Input
		for id, m := range d.members {
			if e := m.orders[leadTask]; id == l.e.self.ID || e != nil && e.run {
				d.order(m, leadTask, id == l.e.self.ID)
			}
		}
	})
}
