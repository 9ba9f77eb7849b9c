package e2e_test

// A store that checks tokens, as a real one should: it refuses a write with a lower
// token than the highest it has seen for the task.

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

// write is a write that the store has accepted.
type write struct {
	at    int64
	task  string
	token uint64
	pid   int
}

type store struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu      sync.Mutex
	highest map[string]uint64
	taken   []write
	refused int
	conns   map[net.Conn]bool // nil: closed
}

func openStore(t *testing.T) *store {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &store{listener: l, highest: map[string]uint64{}, conns: map[net.Conn]bool{}}
	s.serving.Go(s.accept)
	t.Cleanup(s.close)
	return s
}

func (s *store) addr() string { return s.listener.Addr().String() }

func (s *store) close() {
	_ = s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.serving.Wait()
}

func (s *store) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		open := s.conns != nil
		if open {
			s.conns[c] = true
		}
		s.mu.Unlock()
		if !open {
			_ = c.Close()
			return
		}
		s.serving.Go(func() { s.serve(c) })
	}
}

func (s *store) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		var w write
		if _, err := fmt.Sscan(lines.Text(), &w.pid, &w.task, &w.token); err != nil {
			return
		}
		answer := "old"
		if s.take(w) {
			answer = "taken"
		}
		if _, err := fmt.Fprintln(c, answer); err != nil {
			return
		}
	}
}

func (s *store) take(w write) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.token < s.highest[w.task] {
		s.refused++
		return false
	}
	s.highest[w.task] = w.token
	w.at = proctest.Now()
	s.taken = append(s.taken, w)
	return true
}

// writes returns the accepted writes, and the number of refused ones.
func (s *store) writes() ([]write, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]write(nil), s.taken...), s.refused
}

// storeClient is a task's connection to the store.
type storeClient struct {
	conn    net.Conn
	answers *bufio.Scanner
}

func dialStore(ctx context.Context, addr string) (*storeClient, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("dial store: %w", err)
	}
	return &storeClient{c, bufio.NewScanner(c)}, nil
}

func (c *storeClient) write(pid int, task string, token uint64) (taken bool, err error) {
	if _, err := fmt.Fprintln(c.conn, pid, task, token); err != nil {
		return false, fmt.Errorf("write to store: %w", err)
	}
	if !c.answers.Scan() {
		return false, fmt.Errorf("read the store's answer: %w", c.answers.Err())
	}
	return c.answers.Text() == "taken", nil
}

func (c *storeClient) close() { _ = c.conn.Close() }

func TestStore_RefusesOldTokens(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := openStore(t)
	defer s.close()
	c, err := dialStore(t.Context(), s.addr())
	require.NoError(t, err)
	defer c.close()
	for _, step := range []struct {
		token uint64
		taken bool
	}{{3, true}, {3, true}, {5, true}, {3, false}, {5, true}} {
		taken, err := c.write(1, "a", step.token)
		require.NoError(t, err)
		require.Equal(t, step.taken, taken, "token %d", step.token)
	}
	_, refused := s.writes()
	require.Equal(t, 1, refused)
}
