package grpc

// Add, Remove and Apply: messages with changes, and their answers.

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// Add makes worker w run task, with its content if there are [Contents]. If these no
// longer have the task, it is not sent, and the error wraps [orchestrator.ErrStale],
// which counts against neither task nor worker.
func (c *Communicator) Add(ctx context.Context, w WorkerID, task string) error {
	return c.applyOne(ctx, w, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: task})
}

// Remove stops task on worker w and returns when it has stopped, or with
// [orchestrator.ErrStopping] shortly before ctx ends.
func (c *Communicator) Remove(ctx context.Context, w WorkerID, task string) error {
	return c.applyOne(ctx, w, orchestrator.Write[string]{Op: orchestrator.OpRemove, Task: task})
}

func (c *Communicator) applyOne(ctx context.Context, w WorkerID, write orchestrator.Write[string]) error {
	errs := c.Apply(ctx, w, []orchestrator.Write[string]{write})
	if errs == nil {
		return nil
	}
	return errs[0]
}

// Apply carries out the writes of one worker concurrently. Writes that do not fit
// into one message well below the limit ([WithMaxMessage]) are sent in several, one
// after the other. After a message without an answer, or when ctx has ended, nothing
// more is sent. The errors of unsent writes wrap [orchestrator.ErrStale], which
// counts against neither task nor worker.
func (c *Communicator) Apply(ctx context.Context, w WorkerID, writes []orchestrator.Write[string]) []error {
	errs := make([]error, len(writes))
	l, err := c.link(w)
	if err != nil {
		err = fmt.Errorf("%w: %w", orchestrator.ErrRejected, err)
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	b := batch{limit: c.limit, most: c.most, send: func(changes []*orchestratorv1.Change) ([]error, error) {
		return l.apply(ctx, changes)
	}}
	for i, write := range writes {
		change, err := c.change(w, write)
		if err == nil && write.Op == orchestrator.OpRemove && l.pinsLost.Load() {
			err = l.last.Load().mayStop(write.Task)
		}
		if err != nil {
			errs[i] = err
			continue
		}
		b.add(change, &errs[i])
	}
	b.flush()
	l.await(ctx, writes, errs)
	failed := false
	for i, err := range errs {
		if err != nil {
			failed = true
			errs[i] = l.failed(err)
		}
	}
	if !failed {
		return nil
	}
	return errs
}

// await repeats the stops that were answered as pending until they are done or ctx ends,
// and reports the writes that are done before that. After an error of a call, the stops
// keep their result, ErrStopping.
func (l *link) await(ctx context.Context, writes []orchestrator.Write[string], errs []error) {
	var reported []bool
	for ctx.Err() == nil {
		var changes []*orchestratorv1.Change
		var of []int
		for i, write := range writes {
			if errors.Is(errs[i], errPending) {
				changes = append(changes, &orchestratorv1.Change{Op: orchestratorv1.Op_OP_REMOVE, Task: []byte(write.Task)})
				of = append(of, i)
			}
		}
		if len(changes) == 0 {
			return
		}
		if reported == nil {
			reported = make([]bool, len(writes))
		}
		for i, write := range writes {
			if errs[i] == nil && !reported[i] {
				reported[i] = true
				orchestrator.Applied(ctx, write)
			}
		}
		answers, err := l.apply(ctx, changes)
		if err != nil {
			return
		}
		progress := false
		for k, i := range of {
			if errors.Is(answers[k], errPending) || errors.Is(answers[k], orchestrator.ErrRejected) {
				continue // it was asked too late; the stop stays under way
			}
			progress = true
			errs[i] = answers[k]
		}
		if !progress {
			return // a worker that keeps the contract has waited
		}
	}
}

// change returns the change to send for a write, or an error if it must not be sent.
func (c *Communicator) change(w WorkerID, write orchestrator.Write[string]) (*orchestratorv1.Change, error) {
	if err := identity.CheckName("task", write.Task); err != nil {
		return nil, fmt.Errorf("%w: %w", orchestrator.ErrRejected, err)
	}
	change := &orchestratorv1.Change{Task: []byte(write.Task)}
	switch write.Op {
	case orchestrator.OpRemove:
		change.Op = orchestratorv1.Op_OP_REMOVE
		return change, nil
	case orchestrator.OpAdd:
		change.Op = orchestratorv1.Op_OP_ADD
	default:
		return nil, fmt.Errorf("%w: %v is not a write", orchestrator.ErrRejected, write.Op)
	}
	if c.settings.Contents == nil {
		return change, nil
	}
	content, version, ok := c.settings.Contents.Content(write.Task)
	if !ok {
		return nil, unsent("task is no longer expected")
	}
	change.Content, change.ContentVersion, change.Receipt = content, version, c.receipt(w, write.Task, version)
	return change, c.fits(change)
}

// receipt returns the receipt for a content of a worker; nil if there are no
// receipts.
func (c *Communicator) receipt(w WorkerID, task string, version int64) []byte {
	if c.settings.Receipts == nil {
		return nil
	}
	r := c.settings.Receipts.Issue(w.Name, task, version)
	return r[:]
}

// fits returns an error if a change is too long for any message.
func (c *Communicator) fits(change *orchestratorv1.Change) error {
	if size := lengthOf(change) + overhead; size > c.settings.MaxMessage {
		return fmt.Errorf("%w: message with its content has %d bytes: WithMaxMessage allows %d",
			orchestrator.ErrRejected, size, c.settings.MaxMessage)
	}
	return nil
}

// overhead is the length of a message without its changes.
const overhead = 64

// lengthOf returns the number of bytes of a change in a message.
func lengthOf(change *orchestratorv1.Change) int {
	return protowire.SizeTag(3) + protowire.SizeBytes(proto.Size(change))
}

// batch collects changes into messages.
type batch struct {
	limit, most int // of a message: number of bytes and of changes
	// send makes a call. The second result is an error that holds for all changes.
	send func([]*orchestratorv1.Change) ([]error, error)

	changes []*orchestratorv1.Change // of the current message
	errs    []*error                 // where to store their results
	length  int                      // bytes of changes
	over    error                    // why nothing more is sent; nil: it is
}

// add adds a change to the current message, and sends that message first if the
// change does not fit. The result is stored in err, at the latest by flush.
func (b *batch) add(change *orchestratorv1.Change, err *error) {
	n := lengthOf(change)
	if len(b.changes) > 0 && (b.length+n > b.limit || len(b.changes) == b.most) {
		b.flush()
	}
	b.changes, b.errs, b.length = append(b.changes, change), append(b.errs, err), b.length+n
}

// flush sends the current message.
func (b *batch) flush() {
	if len(b.changes) == 0 {
		return
	}
	err := b.over
	var answers []error
	if err == nil {
		answers, err = b.send(b.changes)
		b.over = errorOfRest(err)
	}
	for i := range b.errs {
		*b.errs[i] = err
		if err == nil {
			*b.errs[i] = answers[i]
		}
	}
	b.changes, b.errs, b.length = b.changes[:0], b.errs[:0], 0
}

// errorOfRest returns the error of the changes that are not sent after an earlier message
// with the error err; nil if they may be sent.
func errorOfRest(err error) error {
	switch wire.OutcomeOf(err) {
	case orchestratorv1.Outcome_OUTCOME_DONE:
		return nil
	case orchestratorv1.Outcome_OUTCOME_DEPOSED:
		return err
	}
	return unsent(fmt.Sprintf("earlier message failed: %v", err))
}

// unsent returns the error of a write that was not sent, for a reason that lies neither
// with its task nor with its worker: an orchestrator counts ErrStale against neither.
func unsent(reason string) error {
	return &peer.Error{Text: "not sent: " + reason, Causes: []error{orchestrator.ErrStale}}
}

// apply makes one call. It returns an error for each change, or one for all of them.
func (l *link) apply(ctx context.Context, changes []*orchestratorv1.Change) ([]error, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", unsent("call ended before"), context.Cause(ctx))
	}
	request := &orchestratorv1.ApplyRequest{Term: termOf(ctx), Incarnation: l.worker.Incarnation, Changes: changes}
	if l.assigned != nil {
		l.assigned.send(changes)
	}
	answers := wire.ApplyReply{Want: len(changes)}
	sent, err := l.call(ctx, orchestratorv1.Worker_Apply_FullMethodName, request, &answers)
	if err == nil {
		err = answers.Check()
	}
	if err != nil {
		l.reportReachability(ctx, err)
		if !sent && wire.OutcomeOf(err) == orchestratorv1.Outcome_OUTCOME_UNSPECIFIED {
			err = fmt.Errorf("%w: worker not reached: %w", orchestrator.ErrRejected, err)
		}
		return nil, err
	}
	later := answers.Response.GetTerm()
	successor := l.checkEpoch(ctx, orchestrator.Term{Epoch: later.GetEpoch(), Number: later.GetNumber()})
	l.reportReachability(ctx, successor)
	errs := make([]error, len(changes))
	for i, r := range answers.Response.GetResults() {
		errs[i] = wire.ErrorOf(r)
		if r.GetPending() && errors.Is(errs[i], orchestrator.ErrStopping) && changes[i].GetOp() == orchestratorv1.Op_OP_REMOVE {
			errs[i] = errPending
		}
		if errors.Is(errs[i], orchestrator.ErrDeposed) && !errors.Is(successor, orchestrator.ErrDeposed) {
			errs[i] = wire.Explained(orchestrator.ErrRejected, r.GetMessage()) // without a higher epoch, or not believed
		}
	}
	if l.assigned != nil {
		l.recordResults(changes, errs)
	}
	return errs, nil
}

// recordResults records the results of a manager's worker. It replaces results that violate
// the contract: the orchestrator counts neither ErrStale nor ErrStopping as a failure, so
// it would repeat the write forever.
func (l *link) recordResults(changes []*orchestratorv1.Change, errs []error) {
	var listed map[string]bool
	for i, c := range changes {
		stops := c.GetOp() == orchestratorv1.Op_OP_REMOVE
		switch {
		case errs[i] == nil && stops:
			l.assigned.stop(string(c.GetTask()))
		case errors.Is(errs[i], orchestrator.ErrStale): // only the manager writes, one term after the other
			errs[i] = fmt.Errorf("%w: the worker says that the term has ended: %v", orchestrator.ErrRejected, errs[i]) //nolint:errorlint // it must not be ErrStale
		case errors.Is(errs[i], orchestrator.ErrStopping) && !stops:
			if listed == nil {
				listed = l.last.Load().listed()
			}
			if !listed[string(c.GetTask())] {
				errs[i] = fmt.Errorf("the worker says that it stops the task, which it does not list: %v", errs[i]) //nolint:errorlint // it must not be ErrStopping
			}
		}
	}
}

var _ wire.Response = (*wire.ApplyReply)(nil)
