package grpc

// Reports, the order in which a worker's tasks are listed, and updates of the contents
// of running tasks.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
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

// mayStop returns an error if a task is a job that runs. The worker believes that its
// leader has seen that.
func (s *snapshot) mayStop(task string) error {
	for i := range s.Tasks {
		if t := &s.Tasks[i]; t.Name == task && t.Pinned && t.State != worker.Completed && t.State != worker.Failed {
			return fmt.Errorf("%w: job %q is %v, and nothing collects the pins of List", orchestrator.ErrRejected, task, t.State)
		}
	}
	return nil
}

// report requests the worker's tasks.
func (l *link) report(ctx context.Context) (*snapshot, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	known := l.last.Load()
	request := &orchestratorv1.ReportRequest{
		Term: termOf(ctx), Incarnation: l.worker.Incarnation, Page: &orchestratorv1.Page{Bytes: uint32(l.settings.MaxMessage)},
	}
	if known.Version != (wire.Version{}) {
		request.Known = &orchestratorv1.Version{Incarnation: known.Version.Incarnation, Counter: known.Version.Counter}
	}
	reply := wire.ReportReply{Known: known.Report, Most: l.settings.MaxMessage / wire.LeastTask}
	err := l.read(ctx, request, &reply)
	for err == nil && reply.More {
		request.Page.Version = &orchestratorv1.Version{Incarnation: reply.Version.Incarnation, Counter: reply.Version.Counter}
		request.Page.From = uint64(len(reply.Tasks))
		err = l.read(ctx, request, &reply)
	}
	l.reportReachability(ctx, err)
	switch {
	case err != nil:
		return nil, err
	case reply.Version == known.Version && (l.assigned == nil || !l.assigned.listsStopped(known.Tasks)):
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

// read reads a report, or the next page of one.
func (l *link) read(ctx context.Context, request *orchestratorv1.ReportRequest, reply *wire.ReportReply) error {
	_, err := l.call(ctx, orchestratorv1.Worker_Report_FullMethodName, request, reply)
	if err == nil {
		err = cmp.Or(l.checkEpoch(ctx, reply.Term), reply.Check(l.worker.Incarnation))
	}
	if own, ok := orchestrator.TermFromContext(ctx); err == nil && ok && reply.Later > own.Number && l.settings.Overtaken != nil {
		l.settings.Overtaken(ctx, state.WorkerID(l.worker), orchestrator.Term{Epoch: own.Epoch, Number: reply.Later})
	}
	return err
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

// errNotGiven reports that a worker runs tasks that it was not given.
var errNotGiven = errors.New("worker has not stopped tasks that it was not given")

// update gives tasks their newest content, and stops those that the worker was not
// given, as far as one message allows. It takes at most half of the remaining time.
// It returns the tasks that have stopped, or [errNotGiven] if the worker has not
// stopped every task that it should. It writes only if the call belongs to a term.
func (c *Communicator) update(ctx context.Context, l *link, s *snapshot) (stopped map[string]bool, err error) {
	if c.settings.Contents == nil || termOf(ctx) == nil {
		return nil, nil
	}
	stock, counted := c.settings.Contents.(RevisedContents)
	var now int64
	if counted {
		if now = stock.Revision(); now != 0 && now == s.current.Load() {
			return nil, nil
		}
	}
	changes, notGiven, err := c.outdated(l, s)
	switch {
	case len(changes) == 0 && notGiven > 0: // they are stopping, or cannot be sent
		return nil, errors.Join(errNotGiven, err)
	case len(changes) == 0:
		if err == nil && counted {
			s.current.Store(now)
		}
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	madeUp := slices.IndexFunc(changes, func(c *orchestratorv1.Change) bool { return c.Op == orchestratorv1.Op_OP_REMOVE })
	if madeUp >= 0 {
		c.settings.Logger.Warn("worker lists tasks it was not given, stopping them",
			"worker", l.worker, "first", wire.Truncate(string(changes[madeUp].GetTask()), identity.MaxName))
	}
	answers, failed := l.apply(ctx, changes)
	if failed != nil && notGiven > 0 {
		return nil, errors.Join(errNotGiven, failed)
	} else if failed != nil {
		return nil, failed
	}
	for i, answer := range answers {
		switch task := string(changes[i].GetTask()); {
		case answer != nil: // keep one error
			err = fmt.Errorf("task %q: %w", task, answer)
		case changes[i].GetOp() == orchestratorv1.Op_OP_REMOVE:
			if stopped == nil {
				stopped = make(map[string]bool)
			}
			stopped[task] = true
		}
	}
	if len(stopped) < notGiven {
		return nil, errors.Join(errNotGiven, err)
	}
	return stopped, err
}

// maxForeign is how many tasks a worker may list that are neither expected nor assigned
// to it: a term interns and stops each of them.
const maxForeign = 4096

// outdated returns the changes for tasks with outdated content, the number of tasks
// that the worker was not given, and an error for those that cannot be sent. A task
// that is not assigned to the worker gets no content, because the worker may have
// invented it. The worker is told to stop the task, and the next term gives the task to
// a worker again.
func (c *Communicator) outdated(l *link, s *snapshot) (changes []*orchestratorv1.Change, notGiven int, err error) {
	length, full, foreign := 0, false, 0
	for i := range s.Tasks {
		t := &s.Tasks[i]
		content, version, ok := c.settings.Contents.Content(t.Name)
		given := t.Given || l.assigned == nil
		switch {
		case given:
		case ok:
			notGiven++
		default:
			foreign++
		}
		if !ok || full || t.State == worker.Stopping || given && version <= t.Version {
			continue
		}
		change := &orchestratorv1.Change{Op: orchestratorv1.Op_OP_UPDATE, Task: []byte(t.Name)}
		if !given {
			change.Op = orchestratorv1.Op_OP_REMOVE
		} else {
			change.Content, change.ContentVersion, change.Receipt = content, version, c.receipt(l.worker, t.Name, version)
		}
		if big := c.fits(change); big != nil {
			err = fmt.Errorf("task %q: %w", t.Name, big)
			continue
		}
		length += lengthOf(change)
		if full = len(changes) > 0 && (length > c.limit || len(changes) == c.most); !full {
			changes = append(changes, change)
		}
	}
	if foreign > maxForeign {
		return nil, foreign, fmt.Errorf("it lists %d tasks that are not expected: at most %d", foreign, maxForeign)
	}
	return changes, notGiven, err
}
