package manager

// How a manager calls a worker that registers, and the limits of these calls.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

const (
	// probeTime is the time that a registering worker has to answer.
	probeTime = 5 * time.Second
	// maxProbes is the number of these calls at the same time. It is large enough
	// that workers that never answer do not hold up a fleet that registers at once.
	maxProbes = 256
	// maxIntroduction is how many bytes of an answer are read. A registering worker
	// usually has nothing to list.
	maxIntroduction = 4 << 10
	// introductionWindow is the flow-control window of such a connection, the
	// smallest that HTTP/2 allows.
	introductionWindow = 64 << 10
)

// maxTries is the number of failed calls that a name may have within a minute.
const maxTries = 12

// dialback calls workers that register. An unregistered worker is not trusted, and
// chooses the address that the manager calls. So the dialback makes one call at a time
// under each name, over all connections, and few that fail. It reads little of each
// answer.
type dialback struct {
	settings *option.Manager
	slots    chan struct{} // holds one for each call under way

	mu    sync.Mutex
	names map[string]*tries
}

// tries is the state of the calls under one name.
type tries struct {
	busy   bool      // a call is under way or waits for a slot
	failed int       // failed calls since then
	since  time.Time // when the minute began
}

func newDialback(s *option.Manager) *dialback {
	return &dialback{settings: s, slots: make(chan struct{}, maxProbes), names: make(map[string]*tries)}
}

var (
	errProbe   = errors.New("manager cannot call worker")
	errProbed  = errors.New("another Register under this name is under way")
	errTooMany = fmt.Errorf("%d calls under this name failed within a minute", maxTries)
)

// probe calls a worker at an address, with the manager's term. It returns an error
// unless the worker that registers has answered there.
//
// The error of a call is for the manager's log only, because the worker could learn
// from it what listens in the manager's network. The time reveals nothing either:
// every failed call is answered after probeTime, whatever the reason.
func (d *dialback) probe(ctx context.Context, w communicator.WorkerID, address string, term *orchestratorv1.Term) error {
	err := d.take(w.Name, time.Now())
	if err == nil {
		err = d.call(ctx, w, address, term)
		d.release(w.Name, err) // after the wait, or another Register would reveal when the call ended
	}
	if err != nil {
		return fmt.Errorf("worker %q at %s: %w: %w", w.Name, address, errProbe, err)
	}
	return nil
}

// call makes the call when a slot is free. It keeps the slot until the connection is
// closed and the answer is due.
func (d *dialback) call(ctx context.Context, w communicator.WorkerID, address string, term *orchestratorv1.Term) error {
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	case <-ctx.Done():
		return fmt.Errorf("too many registrations under way: %w", context.Cause(ctx))
	}
	over := time.After(d.settings.Probing)
	err := d.ask(ctx, w, address, term)
	if err != nil {
		select {
		case <-over:
		case <-ctx.Done():
		}
	}
	return err
}

// take begins a call under a name, or returns why it must not.
func (d *dialback) take(name string, now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.names[name]
	if t == nil {
		d.forget(now)
		t = &tries{since: now}
		d.names[name] = t
	}
	if t.over(now) {
		t.failed, t.since = 0, now
	}
	switch {
	case t.busy:
		return errProbed
	case t.failed == maxTries:
		return errTooMany
	}
	t.busy = true
	return nil
}

// release ends a call.
func (d *dialback) release(name string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.names[name]
	t.busy = false
	if err == nil {
		delete(d.names, name)
		return
	}
	t.failed++
}

func (t *tries) over(now time.Time) bool { return now.Sub(t.since) >= time.Minute }

// forget deletes names that have had no call for a minute, so that memory is bounded
// by the number of calls in two minutes.
func (d *dialback) forget(now time.Time) {
	if len(d.names) < 2*maxProbes {
		return
	}
	for name, t := range d.names {
		if !t.busy && t.over(now) {
			delete(d.names, name)
		}
	}
}

// ask requests a report. If the report is too long to be read, ask applies no
// changes instead, which another process would refuse as well. The second call
// carries the term, because a worker that has seen a term may refuse a call without
// one.
func (d *dialback) ask(ctx context.Context, w communicator.WorkerID, address string, term *orchestratorv1.Term) error {
	ctx, cancel := context.WithTimeout(ctx, d.settings.Probing)
	defer cancel()
	small := []grpc.DialOption{
		grpc.WithReadBufferSize(4 << 10), grpc.WithWriteBufferSize(4 << 10),
		grpc.WithStaticStreamWindowSize(introductionWindow), grpc.WithStaticConnWindowSize(introductionWindow),
	}
	conn, err := d.settings.Dial(address, identity.Principal{Role: identity.RoleWorker, Name: w.Name}, append(small, d.settings.Dialing...)...)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // no call is left on it
	invoke := func(method string, request proto.Message, reply wire.Response) error {
		return conn.Invoke(ctx, method, request, reply, grpc.ForceCodecV2(wire.ResponseCodec{}), grpc.MaxCallRecvMsgSize(maxIntroduction))
	}

	report := wire.ReportReply{Most: maxIntroduction}
	err = invoke(orchestratorv1.Worker_Report_FullMethodName, &orchestratorv1.ReportRequest{Incarnation: w.Incarnation}, &report)
	if err == nil {
		return report.Check(w.Incarnation) // another kind of server may have answered
	}
	if status.Code(err) == codes.ResourceExhausted {
		var none wire.ApplyReply
		err = invoke(orchestratorv1.Worker_Apply_FullMethodName, &orchestratorv1.ApplyRequest{Term: term, Incarnation: w.Incarnation}, &none)
		if err == nil {
			return none.Check()
		}
	}
	return wire.Readable(err)
}
