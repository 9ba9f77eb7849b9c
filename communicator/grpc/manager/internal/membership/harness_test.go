package membership_test

// A cluster that exists only in the test, and a member of it in a synctest bubble.

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/communicator/grpc/manager/internal/membership"
	"github.com/f8949c05/orchestrator/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	lease    = 12 * time.Second
	stopping = 2 * time.Second
)

var (
	errOver  = errors.New("test is over")
	errAway  = errors.New("cluster is away")
	errFinal = errors.New("never again")
)

// cluster has one member at most. Its fields are what the member meets there.
type cluster struct {
	join  func(context.Context) error // called by Join; nil: it succeeds
	leave func()                      // called by Leave; nil: it returns at once
	alone bool                        // no other member can take tasks
	ends  time.Duration               // how long Keep takes to end
	lost  chan error                  // ends Keep

	mu     sync.Mutex
	events []string
	at     []time.Time // of the events
	away   error       // why Join fails; nil: it succeeds
	silent bool        // the lease is not renewed
}

// note records an event.
func (c *cluster) note(event string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, event)
	c.at = append(c.at, time.Now())
}

// noted returns the events so far.
func (c *cluster) noted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// pauses returns the times between two events.
func (c *cluster) pauses() (between []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.at[1:] {
		between = append(between, c.at[i+1].Sub(c.at[i]))
	}
	return between
}

// set changes the fields.
func (c *cluster) set(f func(*cluster)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

// session is a session of the member, as the cluster sees it.
type session struct {
	*membership.Session
	*cluster
	worker *worker.Worker[string]
}

func (s *session) Join(ctx context.Context) error {
	s.note("join")
	s.mu.Lock()
	away := s.away
	s.mu.Unlock()
	if away != nil {
		return away
	}
	if s.join != nil {
		if err := s.join(ctx); err != nil {
			return err
		}
	}
	s.worker.Sending()()
	return nil
}

func (s *session) Keep(ctx context.Context) error {
	ticker := time.NewTicker(lease / 6)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			if s.ends > 0 {
				<-time.After(s.ends)
				s.note("kept")
			}
			return nil
		case err := <-s.lost:
			return err
		case <-ticker.C:
			s.mu.Lock()
			silent := s.silent
			s.mu.Unlock()
			if !silent {
				s.worker.Sending()()
			}
		}
	}
}

func (s *session) Announce(ctx context.Context) error {
	s.note("announce")
	if s.alone {
		s.Alone()
		s.Alone()
	}
	return s.Emptied(ctx)
}

func (s *session) Leave(context.Context, error) {
	s.note("leave")
	if s.leave != nil {
		s.leave()
	}
}

// member is a member of a cluster while it runs.
type member struct {
	*testing.T
	*cluster
	worker *worker.Worker[string]
	runner *membership.Runner
	stop   time.Duration // how long a task takes to stop
	causes []error       // why tasks have stopped
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error // what Run returned, once done is closed

	logging sync.Mutex
	log     strings.Builder
}

// newMember returns a member that does not run yet.
func newMember(t *testing.T, c *cluster, run func(context.Context, string) error, opts ...worker.Option) *member {
	t.Helper()
	c.lost = make(chan error)
	m := &member{T: t, cluster: c, done: make(chan struct{})}
	if run == nil {
		run = m.run
	}
	var err error
	m.worker, err = worker.New(run, append([]worker.Option{worker.WithLease(lease, stopping)}, opts...)...)
	require.NoError(t, err)
	m.runner = membership.New(m.worker, "w", slog.New(slog.NewTextHandler(m, nil)))
	return m
}

// run runs a task until it is stopped, except tasks called "short".
func (m *member) run(ctx context.Context, task string) error {
	if task == "short" {
		return nil
	}
	<-ctx.Done()
	if m.stop > 0 {
		<-time.After(m.stop)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.causes = append(m.causes, context.Cause(ctx))
	return context.Cause(ctx)
}

// startMember runs a member until the end of the test.
func startMember(t *testing.T, c *cluster, opts ...worker.Option) *member {
	t.Helper()
	return newMember(t, c, nil, opts...).start()
}

func (m *member) start() *member {
	m.Helper()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(m.Context()))
	m.cancel = cancel
	go func() {
		defer close(m.done)
		m.err = m.runner.Run(ctx, func(ctx context.Context) error { return m.runner.Sessions(ctx, m.config()) })
	}()
	m.Cleanup(func() {
		cancel(errOver)
		<-m.done
	})
	synctest.Wait()
	return m
}

func (m *member) config() membership.Config {
	return membership.Config{
		Open:    func(s *membership.Session) membership.Transport { return &session{s, m.cluster, m.worker} },
		Final:   func(err error) bool { return errors.Is(err, errFinal) || errors.Is(err, worker.ErrClosed) },
		Stopped: func(context.Context) { m.note("stopped") },
	}
}

// Write appends to the member's log.
func (m *member) Write(line []byte) (int, error) {
	m.logging.Lock()
	defer m.logging.Unlock()
	return m.log.Write(line)
}

// said returns how many lines of the member's log contain text.
func (m *member) said(text string) int {
	m.logging.Lock()
	defer m.logging.Unlock()
	return strings.Count(m.log.String(), text)
}

func (m *member) add(tasks ...string) {
	m.Helper()
	for _, task := range tasks {
		require.NoError(m, m.worker.Add(m.Context(), task))
	}
	synctest.Wait()
}

// close closes the member, and returns a channel for the result.
func (m *member) close(ctx context.Context) <-chan error {
	closed := make(chan error, 1)
	go func() { closed <- m.runner.Close(ctx) }()
	synctest.Wait()
	return closed
}

// closeWithin closes the member with a context that ends after d.
func (m *member) closeWithin(d time.Duration) <-chan error {
	ctx, cancel := context.WithTimeout(m.Context(), d)
	m.Cleanup(cancel)
	return m.close(ctx)
}

// ended reports whether Run has returned.
func (m *member) ended() bool {
	synctest.Wait()
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// after waits for a duration.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
