package grpc

// Add, Remove and Apply: messages of changes, and the answers to them.

import (
	"context"
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Add has worker run task, with its content where there are [Contents]. A task
// that has none there any more is not sent: the error wraps
// [orchestrator.ErrStale], as nobody is to blame.
func (c *Communicator) Add(ctx context.Context, w Worker, task string) error {
	return c.one(ctx, w, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: task})
}

// Remove has worker stop task, and returns when it has stopped; or with
// [orchestrator.ErrStopping], shortly before ctx ends.
func (c *Communicator) Remove(ctx context.Context, w Worker, task string) error {
	return c.one(ctx, w, orchestrator.Write[string]{Op: orchestrator.OpRemove, Task: task})
}

func (c *Communicator) one(ctx context.Context, w Worker, write orchestrator.Write[string]) error {
	errs := c.Apply(ctx, w, []orchestrator.Write[string]{write})
	if errs == nil {
		return nil
	}
	return errs[0]
}

// Apply carries out writes for one worker, side by side. What does not fit into one
// message well below the limit ([WithMaxMessage]) is sent in several, one after
// the other; after one that was not answered, or when ctx has ended, nothing more is
// sent, and what was not wraps [orchestrator.ErrStale], as nobody is to blame.
func (c *Communicator) Apply(ctx context.Context, w Worker, writes []orchestrator.Write[string]) []error {
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

// await asks again for the stops for which an answer did not wait, and reports the writes
// that are done meanwhile. If it fails, a stop is as it was: under way.
func (l *link) await(ctx context.Context, writes []orchestrator.Write[string], errs []error) {
	reported := make([]bool, len(writes))
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
			progress = progress || !errors.Is(answers[k], errPending)
			errs[i] = answers[k]
		}
		if !progress {
			return // a worker that keeps the contract has waited
		}
	}
}

// change returns what is sent for a write, or why nothing is.
func (c *Communicator) change(w Worker, write orchestrator.Write[string]) (*orchestratorv1.Change, error) {
	if err := checkName("task", write.Task); err != nil {
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
	if c.settings.contents == nil {
		return change, nil
	}
	content, version, ok := c.settings.contents.Content(write.Task)
	if !ok {
		return nil, &unsent{"nobody expects the task any more"}
	}
	change.Content, change.ContentVersion, change.Receipt = content, version, c.receipt(w, write.Task, version)
	return change, c.fits(change)
}

// receipt returns what proves that a worker was given a content; nil if nothing
// does.
func (c *Communicator) receipt(w Worker, task string, version int64) []byte {
	if c.settings.receipts == nil {
		return nil
	}
	r := c.settings.receipts.issue(w.Name, task, version)
	return r[:]
}

// fits says why a change cannot be sent at all.
func (c *Communicator) fits(change *orchestratorv1.Change) error {
	if size := lengthOf(change) + overhead; size > c.settings.maxMessage {
		return fmt.Errorf("%w: with its content it takes a message of %d bytes, and WithMaxMessage allows %d",
			orchestrator.ErrRejected, size, c.settings.maxMessage)
	}
	return nil
}

// overhead is what a message takes beside its changes.
const overhead = 64

// lengthOf returns how many bytes a change takes in a message.
func lengthOf(change *orchestratorv1.Change) int {
	return protowire.SizeTag(3) + protowire.SizeBytes(proto.Size(change))
}

// batch is changes on their way into messages.
type batch struct {
	limit, most int // of a message: bytes, changes
	// send makes a call. Its second result says that there was no answer, or one for
	// all changes.
	send func([]*orchestratorv1.Change) ([]error, error)

	changes []*orchestratorv1.Change // of the message at hand
	errs    []*error                 // where their answers go
	length  int                      // bytes of changes
	over    error                    // nothing more is sent
}

// add takes a change in, and sends what there is where it does not fit in beside
// that. Its answer goes to err, when flush has returned.
func (b *batch) add(change *orchestratorv1.Change, err *error) {
	n := lengthOf(change)
	if len(b.changes) > 0 && (b.length+n > b.limit || len(b.changes) == b.most) {
		b.flush()
	}
	b.changes, b.errs, b.length = append(b.changes, change), append(b.errs, err), b.length+n
}

// flush sends what there is.
func (b *batch) flush() {
	if len(b.changes) == 0 {
		return
	}
	err := b.over
	var answers []error
	if err == nil {
		answers, err = b.send(b.changes)
		b.over = following(err)
	}
	for i := range b.errs {
		*b.errs[i] = err
		if err == nil {
			*b.errs[i] = answers[i]
		}
	}
	b.changes, b.errs, b.length = b.changes[:0], b.errs[:0], 0
}

// following returns the error of what is not sent because a message before it has
// failed.
func following(err error) error {
	switch outcomeOf(err) {
	case orchestratorv1.Outcome_OUTCOME_DONE:
		return nil
	case orchestratorv1.Outcome_OUTCOME_DEPOSED:
		return err
	}
	return &unsent{fmt.Sprintf("an earlier message failed: %v", err)}
}

// apply makes one call. It returns an error for each change, or one for all.
func (l *link) apply(ctx context.Context, changes []*orchestratorv1.Change) ([]error, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", &unsent{"the call ended before"}, context.Cause(ctx))
	}
	request := &orchestratorv1.ApplyRequest{Term: termOf(ctx), Incarnation: l.worker.Incarnation, Changes: changes}
	if l.assigned != nil {
		l.assigned.send(changes)
	}
	answers := verdicts{want: len(changes)}
	sent, err := l.call(ctx, orchestratorv1.Worker_Apply_FullMethodName, request, &answers)
	if err == nil {
		err = answers.check()
	}
	if err != nil {
		l.observed(ctx, err)
		if !sent && outcomeOf(err) == orchestratorv1.Outcome_OUTCOME_UNSPECIFIED {
			err = fmt.Errorf("%w: it was not reached: %w", orchestrator.ErrRejected, err)
		}
		return nil, err
	}
	later := answers.response.GetTerm()
	successor := l.succeeded(ctx, orchestrator.Term{Epoch: later.GetEpoch(), Number: later.GetNumber()})
	l.observed(ctx, successor)
	errs := make([]error, len(changes))
	for i, r := range answers.response.GetResults() {
		errs[i] = errorOf(r)
		if r.GetPending() && errors.Is(errs[i], orchestrator.ErrStopping) && changes[i].GetOp() == orchestratorv1.Op_OP_REMOVE {
			errs[i] = errPending
		}
		if errors.Is(errs[i], orchestrator.ErrDeposed) && !errors.Is(successor, orchestrator.ErrDeposed) {
			errs[i] = explained(orchestrator.ErrRejected, r.GetMessage()) // without a higher epoch, or not believed
		}
	}
	if l.assigned != nil {
		l.settle(changes, errs)
	}
	return errs, nil
}

// settle records the answers of a manager's worker, and replaces those that a worker that
// keeps the contract does not give. They count against neither the task nor the worker,
// so the term would repeat the write for ever.
func (l *link) settle(changes []*orchestratorv1.Change, errs []error) {
	var listed map[string]bool
	for i, c := range changes {
		stops := c.GetOp() == orchestratorv1.Op_OP_REMOVE
		switch {
		case errs[i] == nil && stops:
			l.assigned.stop(string(c.GetTask()))
		case errors.Is(errs[i], orchestrator.ErrStale): // only the manager writes, one term after the other
			errs[i] = fmt.Errorf("%w: it says that the term is over: %v", orchestrator.ErrRejected, errs[i]) //nolint:errorlint // it is not to be ErrStale
		case errors.Is(errs[i], orchestrator.ErrStopping) && !stops:
			if listed == nil {
				listed = l.last.Load().listed()
			}
			if !listed[string(c.GetTask())] {
				errs[i] = fmt.Errorf("it says that it stops the task, which it does not list: %v", errs[i]) //nolint:errorlint // it is not to be ErrStopping
			}
		}
	}
}

// verdicts is an ApplyResponse that is being read.
type verdicts struct {
	want int // as many as there were changes

	got      int
	response orchestratorv1.ApplyResponse // where got is what is wanted
}

var _ answer = (*verdicts)(nil)

// decode counts before it reads.
func (v *verdicts) decode(data []byte) (err error) {
	if v.got, err = count(data, 1); err != nil || v.got != v.want {
		return err
	}
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, &v.response)
}

// check says why verdicts cannot be on the changes that there were.
func (v *verdicts) check() error {
	if v.got != v.want {
		return fmt.Errorf("it has answered %d of %d changes", v.got, v.want)
	}
	return nil
}
