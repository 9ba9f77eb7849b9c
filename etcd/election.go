package etcd

// The election: which of several candidates leads.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/f8949c05/orchestrator"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ElectionOption is for [NewElection]. Every [Option] is one.
type ElectionOption interface {
	applyElection(*electionSettings)
}

type electionSettings struct {
	settings
	lease time.Duration
}

type electionOption func(*electionSettings)

func (f electionOption) applyElection(s *electionSettings) { f(s) }

// WithLeaseDuration sets for how long a leader that nobody hears of goes on to
// be the leader. The default is 10 s. It has to be whole seconds; etcd grants
// none that is shorter than one and a half of its election timeouts, rounded up,
// 2 s with its defaults, and [Election.Run] then fails with [ErrLeaseTooShort].
func WithLeaseDuration(d time.Duration) ElectionOption {
	return electionOption(func(s *electionSettings) {
		if err := checkLease(d); err != nil {
			s.invalid("WithLeaseDuration: %w", err)
		}
		s.lease = d
	})
}

// Election is a candidate. Its keys are those of etcd's own election
// (concurrency.Election, etcdctl elect), so that both can take part in one and
// any tool can see who leads: each candidate has a key under leader/, named by
// its lease, and the one whose key is the oldest leads.
//
// Any number of elections may run on one client.
type Election struct {
	electionSettings
	client *clientv3.Client
	name   string
	first  contact
}

// NewElection returns a candidate of that name, which others get to see, and
// which need not be unique. It does not talk to etcd yet.
func NewElection(c *clientv3.Client, name string, opts ...ElectionOption) (*Election, error) {
	s := electionSettings{settings: defaults(), lease: 10 * time.Second}
	for _, opt := range opts {
		if opt == nil {
			s.invalid("an ElectionOption is nil")
			continue
		}
		opt.applyElection(&s)
	}
	if err := checkName("candidate", name); err != nil {
		s.problems = append(s.problems, err)
	}
	if err := s.finish(); err != nil {
		return nil, fmt.Errorf("new election: %w", err)
	}
	return &Election{electionSettings: s, client: c, name: name}, nil
}

// Leader is who leads.
type Leader struct {
	Name  string
	Epoch uint64 // rises with each leader
}

// Leader asks etcd who leads. [ErrNoLeader] where nobody does.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	if err := e.first.enter(ctx, &e.settings, e.client); err != nil {
		return Leader{}, fmt.Errorf("who leads: %w", err)
	}
	resp, err := e.client.Get(ctx, e.layout.Leaders(), clientv3.WithFirstCreate()...)
	if err != nil {
		return Leader{}, fmt.Errorf("who leads: %w", err)
	}
	if len(resp.Kvs) == 0 {
		return Leader{}, ErrNoLeader
	}
	return Leader{string(resp.Kvs[0].Value), uint64(resp.Kvs[0].CreateRevision)}, nil
}

// Run waits until this candidate is elected, calls lead, and resigns when lead
// has returned; the next candidate then leads within milliseconds.
//
// The context given to lead ends as soon as the leadership is lost, with a cause
// that wraps [orchestrator.ErrDeposed]: when the lease can have ended, counted
// from when the last keepalive that etcd acknowledged was sent, less a tenth of
// it, by a clock that goes on while the machine is suspended; when the key is
// gone; when the cluster is another one. It ends with the cause of ctx when that
// ends; until lead has returned this candidate leads on then, so that what was
// begun is carried through. lead has to return in either case: until it does nothing
// else happens here, though others may lead. What a leader writes is guarded by [Leadership.Guard], which no
// clock can fool.
//
// Run returns what lead returned, with ErrDeposed as the exception: that, and a
// leadership that was lost, lead to another campaign, and so does etcd being
// away, also at the start. It returns the cause of ctx when that ends,
// [ErrForeignPrefix], [ErrLeaseTooShort], and what etcd has against the client's
// user at the first contact.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, l *Leadership) error) error {
	pause, owed := shortest, debt{}
	for {
		began := time.Now()
		led, err := e.stand(ctx, &owed, lead)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, orchestrator.ErrDeposed) && led:
			e.logger.Warn("deposed", "candidate", e.name, "err", err)
		case errors.Is(err, orchestrator.ErrDeposed):
			e.logger.Warn("candidacy lost, to be renewed", "candidate", e.name, "err", err)
		case led, !e.first.made.Load(), errors.Is(err, ErrLeaseTooShort), errors.Is(err, ErrForeignPrefix):
			return err
		default:
			e.logger.Warn("could not stand for election", "candidate", e.name, "err", err)
		}
		if time.Since(began) > longest {
			pause = shortest
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, longest)
	}
}

// shortest is the first pause after a failure; each further one doubles it, up
// to longest.
const (
	shortest = 50 * time.Millisecond
	longest  = time.Second
)

// stand takes part in one election, and reports whether it came to lead.
func (e *Election) stand(ctx context.Context, owed *debt, lead func(ctx context.Context, l *Leadership) error) (led bool, err error) {
	// Every time, because another cluster knows nothing of the prefix.
	if err := e.await(ctx, e.client); err != nil {
		return false, fmt.Errorf("run for leader: %w", err)
	}
	e.first.made.Store(true)
	c, alive, err := e.begin(ctx)
	if err != nil {
		return false, err
	}
	defer c.end(ctx, owed)
	owed.pay(ctx)
	both, cancel := context.WithCancelCause(alive)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	epoch, err := c.campaign(both)
	if err != nil {
		return false, fmt.Errorf("campaign: %w", err)
	}
	e.logger.Info("elected", "candidate", e.name, "epoch", epoch)
	return true, newLeadership(alive, c, epoch).run(both, lead)
}

// wait waits for about d.
func wait(ctx context.Context, d time.Duration) error {
	if !sleep(ctx, d/2+rand.N(d)) {
		return context.Cause(ctx)
	}
	return nil
}
