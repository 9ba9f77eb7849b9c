package grpc

// How a manager calls who wants to be a member, and what all those calls may take.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	// probeTime is how long a worker that registers has to answer.
	probeTime = 5 * time.Second
	// maxProbes is how many workers are called at once: enough for those that never
	// answer not to hold up a fleet that comes together.
	maxProbes = 256
	// maxIntroduction is how many bytes of an answer are read: who registers has
	// nothing to list, as a rule.
	maxIntroduction = 4 << 10
	// introductionWindow is what may be on its way unread; HTTP/2 knows no less.
	introductionWindow = 64 << 10
)

// maxTries is how many calls that fail a name has in a minute.
const maxTries = 12

// prober calls workers that want to be members. They are strangers before, and choose
// the address, so it bounds what they can have it do: under one name it makes one call
// at a time, over all connections, and few that fail. It reads little of each answer.
type prober struct {
	settings *managerSettings
	slots    chan struct{} // holds one for each call under way

	mu    sync.Mutex
	names map[string]*tries
}

// tries is what is known of the calls under a name.
type tries struct {
	busy   bool      // one is under way, or is to be
	failed int       // since then
	since  time.Time // the first of those
}

func newProber(s *managerSettings) *prober {
	return &prober{settings: s, slots: make(chan struct{}, maxProbes), names: make(map[string]*tries)}
}

var (
	errProbe   = errors.New("the manager cannot call it")
	errProbed  = errors.New("it is called already, for another Register under this name")
	errTooMany = fmt.Errorf("%d calls under this name have failed within a minute", maxTries)
)

// probe calls a worker at an address, and returns why that is not known to be its.
//
// The term is the manager's. The reason is for the manager's log, not for the caller, which could learn from it
// what listens in the manager's network. Nor does the caller learn that from the time:
// whatever made a call fail, it is answered when probeTime is over.
func (p *prober) probe(ctx context.Context, w Worker, address string, term *orchestratorv1.Term) error {
	err := p.take(w.Name, time.Now())
	if err == nil {
		err = p.call(ctx, w, address, term)
		p.release(w.Name, err) // after the wait: else another Register would tell when the call ended
	}
	if err != nil {
		return fmt.Errorf("worker %q at %s: %w: %w", w.Name, address, errProbe, err)
	}
	return nil
}

// call makes the call once there is a slot, which is kept until nothing is left of
// its connection, and its answer is due.
func (p *prober) call(ctx context.Context, w Worker, address string, term *orchestratorv1.Term) error {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return fmt.Errorf("as many workers are called as may be at once: %w", context.Cause(ctx))
	}
	over := time.NewTimer(p.settings.probing)
	defer over.Stop()
	err := p.ask(ctx, w, address, term)
	if err != nil {
		select {
		case <-over.C:
		case <-ctx.Done():
		}
	}
	return err
}

// take begins a call under a name, if there may be one.
func (p *prober) take(name string, now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.names[name]
	if t == nil {
		p.forget(now)
		t = &tries{since: now}
		p.names[name] = t
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
func (p *prober) release(name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.names[name]
	t.busy = false
	if err == nil {
		delete(p.names, name)
		return
	}
	t.failed++
}

func (t *tries) over(now time.Time) bool { return now.Sub(t.since) >= time.Minute }

// forget lets go of names that have not been tried for a minute, so that what is kept
// is bounded by what can be tried in two.
func (p *prober) forget(now time.Time) {
	if len(p.names) < 2*maxProbes {
		return
	}
	for name, t := range p.names {
		if !t.busy && t.over(now) {
			delete(p.names, name)
		}
	}
}

// ask asks for a report. If that is too long to be read, it applies no changes, which
// another process would refuse just the same. That call has the term, because a worker
// that has seen one may refuse what is of none.
func (p *prober) ask(ctx context.Context, w Worker, address string, term *orchestratorv1.Term) error {
	ctx, cancel := context.WithTimeout(ctx, p.settings.probing)
	defer cancel()
	small := []grpc.DialOption{
		grpc.WithReadBufferSize(4 << 10), grpc.WithWriteBufferSize(4 << 10),
		grpc.WithStaticStreamWindowSize(introductionWindow), grpc.WithStaticConnWindowSize(introductionWindow),
	}
	conn, err := p.settings.dial(address, party{role: roleWorker, name: w.Name}, append(small, p.settings.dialing...)...)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is on it any more
	invoke := func(method string, request proto.Message, reply answer) error {
		return conn.Invoke(ctx, method, request, reply, grpc.ForceCodecV2(answerCodec{}), grpc.MaxCallRecvMsgSize(maxIntroduction))
	}

	report := reply{known: &snapshot{}, most: maxIntroduction}
	err = invoke(orchestratorv1.Worker_Report_FullMethodName, &orchestratorv1.ReportRequest{Incarnation: w.Incarnation}, &report)
	if err == nil {
		return report.check(w) // whatever may serve there
	}
	if status.Code(err) == codes.ResourceExhausted {
		var none verdicts
		err = invoke(orchestratorv1.Worker_Apply_FullMethodName, &orchestratorv1.ApplyRequest{Term: term, Incarnation: w.Incarnation}, &none)
		if err == nil {
			return none.check()
		}
	}
	return readable(err)
}
