package grpc

// Reports, and the order in which a worker's tasks are listed.

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

// snapshot is a report as it is kept. Only current changes later.
type snapshot struct {
	wire.Report
	names []string // of the tasks, the cheapest to move first

	pinned int // number of names at the end that must not be moved

	ended []wire.Task // the tasks that have completed or failed

	// current is the revision of the contents at which no task lacked its newest
	// content; 0: unknown.
	current atomic.Int64
}

// listed returns the names of the tasks.
func (s *snapshot) listed() map[string]bool {
	names := make(map[string]bool, len(s.Tasks))
	for i := range s.Tasks {
		names[s.Tasks[i].Name] = true
	}
	return names
}

// report requests the worker's tasks.
func (l *link) report(ctx context.Context) (*snapshot, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	known := l.last.Load()
	request := &orchestratorv1.ReportRequest{Term: termOf(ctx), Incarnation: l.worker.Incarnation}
	if known.Version != (wire.Version{}) {
		request.Known = &orchestratorv1.Version{Incarnation: known.Version.Incarnation, Counter: known.Version.Counter}
	}
	reply := wire.ReportReply{Known: known.Report, Most: l.settings.MaxMessage / wire.LeastTask}
	_, err := l.call(ctx, orchestratorv1.Worker_Report_FullMethodName, request, &reply)
	if err == nil {
		err = l.succeeded(ctx, reply.Term)
	}
	if err == nil {
		err = reply.Check(l.worker.Incarnation)
	}
	l.observed(ctx, err)
	switch {
	case err != nil:
		return nil, err
	case reply.Version == known.Version && (l.assigned == nil || !l.assigned.again(known.Tasks)):
		return known, nil
	case reply.Version == known.Version:
		reply.Tasks = slices.Clone(known.Tasks)
	}
	if l.assigned != nil {
		l.assigned.examine(reply.Tasks, known, func(t *wire.Task) bool {
			return l.settings.Receipts.Issued(t.Receipt, l.worker.Name, t.Name, t.Version)
		})
	}
	s := &snapshot{Report: reply.Report}
	s.names, s.pinned = byCost(reply.Tasks, l.settings.Ended != nil)
	for _, t := range s.Tasks {
		if t.State == worker.Completed || t.State == worker.Failed {
			s.ended = append(s.ended, t)
		}
	}
	l.remember(s)
	return s, nil
}

// remember keeps the newest report. Of two concurrent calls, the later may be
// answered first.
func (l *link) remember(s *snapshot) {
	for {
		last := l.last.Load()
		if last.Version.Counter >= s.Version.Counter || l.last.CompareAndSwap(last, s) {
			return
		}
	}
}

// termOf returns the term of a call; nil if it has none.
func termOf(ctx context.Context) *orchestratorv1.Term {
	t, ok := orchestrator.TermFromContext(ctx)
	if !ok {
		return nil
	}
	return &orchestratorv1.Term{Epoch: t.Epoch, Number: t.Number}
}

// byCost returns the names of tasks, the cheapest to move first, and the number of
// pinned ones at the end. Waiting tasks come first, because a move costs them
// nothing, then running ones. Pinned at the end are the jobs that the worker pins,
// and ended tasks, which would run again elsewhere. If ended tasks are recorded
// before the term continues, they come first instead, so that no running task makes
// room for them. Within each group the order is the worker's.
func byCost(tasks []wire.Task, takenDown bool) (names []string, pinned int) {
	names = make([]string, 0, len(tasks))
	for cost := range pinnedCost + 1 {
		for i := range tasks {
			if costOf(&tasks[i], takenDown) != cost {
				continue
			}
			names = append(names, tasks[i].Name)
			if cost == pinnedCost {
				pinned++
			}
		}
	}
	return names, pinned
}

// pinnedCost is the cost of moving a task that must not be moved. All other costs
// are lower.
const pinnedCost = 3

func costOf(t *wire.Task, takenDown bool) int {
	ended := t.State == worker.Completed || t.State == worker.Failed
	switch {
	case ended && takenDown:
		return 0
	case ended, t.Pinned:
		return pinnedCost
	case t.State == worker.Queued, t.State == worker.Backoff:
		return 1
	}
	return 2
}
