package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/f8949c05/orchestrator"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ElectionOption is an option of [NewElection]. Every [Option] is one.
type ElectionOption interface {
	applyElection(*electionSettings)
}

type electionSettings struct {
	settings
	lease time.Duration
}

type electionOption func(*electionSettings)

func (f electionOption) applyElection(s *electionSettings) { f(s) }

// WithLeaseDuration sets how long a leader without contact to etcd remains the
// leader. The default is 10 s. It must be whole seconds. etcd grants no lease
// shorter than 1.5 election timeouts, rounded up, which is 2 s with its defaults.
// With a shorter lease [Election.Run] fails with [ErrLeaseTooShort].
func WithLeaseDuration(d time.Duration) ElectionOption {
	return electionOption(func(s *electionSettings) {
		if err := checkLease(d); err != nil {
			s.invalid("WithLeaseDuration: %w", err)
		}
		s.lease = d
	})
}

// Election is a candidate in an election. Each candidate has a key under leader/,
// named by its lease, and the candidate with the oldest key leads. These are the
// keys of etcd's own election (concurrency.Election, etcdctl elect). So candidates
// of both kinds can compete, and any tool can show the leader.
//
// Many elections may share one client.
type Election struct {
	electionSettings
	client *clientv3.Client
	name   string
	first  preflight
}

// NewElection returns a candidate. The name is visible to other processes and need
// not be unique. NewElection does not contact etcd.
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

// Leader identifies a leader.
type Leader struct {
	Name  string
	Epoch uint64 // rises with each leader
}

// Leader reads the current leader from etcd. It returns [ErrNoLeader] if there is
// none.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	if err := e.first.enter(ctx, &e.settings, e.client); err != nil {
		return Leader{}, fmt.Errorf("read leader: %w", err)
	}
	resp, err := e.client.Get(ctx, e.layout.Leaders(), clientv3.WithFirstCreate()...)
	if err != nil {
		return Leader{}, fmt.Errorf("read leader: %w", err)
	}
	if len(resp.Kvs) == 0 {
		return Leader{}, ErrNoLeader
	}
	return Leader{string(resp.Kvs[0].Value), uint64(resp.Kvs[0].CreateRevision)}, nil
}

// Run waits until this candidate is elected, calls lead, and resigns when lead has
// returned. The next candidate then leads within milliseconds.
//
// The context of lead ends as soon as the leadership is lost, with a cause that
// wraps [orchestrator.ErrDeposed]: when the lease may have expired, when the
// leader's key is gone, or when the cluster is another one. The lease counts from
// the send time of the last acknowledged keepalive, less a tenth of the lease. Its
// clock runs while the machine is suspended.
//
// The context of lead also ends with the cause of ctx. The candidate then remains
// leader until lead returns, so that lead can complete its work.
//
// lead must return when its context ends. Until it does, Run does nothing else,
// though another candidate may lead. A leader guards its writes with
// [Leadership.Guard], which does not depend on any clock.
//
// Run returns the result of lead, unless that is ErrDeposed. After ErrDeposed, a
// lost leadership or a failure of etcd, also at the start, Run campaigns again. It
// returns the cause of ctx when ctx ends. It also returns [ErrForeignPrefix],
// [ErrLeaseTooShort], and an error of etcd at the first contact that rejects the
// client's user.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, l *Leadership) error) error {
	pause, owed := shortest, unrevokedLease{}
	for {
		began := time.Now()
		led, err := e.stand(ctx, &owed, lead)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, orchestrator.ErrDeposed) && led:
			e.logger.Warn("deposed", "candidate", e.name, "err", err)
		case errors.Is(err, orchestrator.ErrDeposed):
			e.logger.Warn("campaign lost, retrying", "candidate", e.name, "err", err)
		case led, !e.first.made.Load(), errors.Is(err, ErrLeaseTooShort), errors.Is(err, ErrForeignPrefix):
			return err
		default:
			e.logger.Warn("campaign failed, retrying", "candidate", e.name, "err", err)
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

// shortest is the first pause after a failure. Each further failure doubles the
// pause, up to longest.
const (
	shortest = 50 * time.Millisecond
	longest  = time.Second
)

// stand takes part in one election, and reports whether this candidate was elected.
func (e *Election) stand(ctx context.Context, owed *unrevokedLease, lead func(ctx context.Context, l *Leadership) error) (led bool, err error) {
	// Check the prefix every time, because another cluster may have replaced the
	// last.
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
	epoch, err := c.run(both)
	if err != nil {
		return false, fmt.Errorf("campaign: %w", err)
	}
	e.logger.Info("elected", "candidate", e.name, "epoch", epoch)
	return true, newLeadership(alive, c, epoch).run(both, lead)
}

// wait waits between d/2 and 3d/2. It returns the cause of ctx if ctx ends first.
func wait(ctx context.Context, d time.Duration) error {
	if !sleep(ctx, d/2+rand.N(d)) {
		return context.Cause(ctx)
	}
	return nil
}
