package replica_test

// Replicas over gRPC on loopback, in real time.

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
	"github.com/f8949c05/orchestrator/worker"
)

// given is what a task was given when it started.
type given struct {
	replica, content string
	token            uint64
}

func TestRun_OverGRPC(t *testing.T) {
	table := memory.New()
	tasks := make([]replica.Task, 6)
	for i := range tasks {
		tasks[i] = replica.Task{Name: string(rune('a' + i)), Content: []byte("v1"), Version: 1}
	}
	var mu sync.Mutex
	running := make(map[string]given)
	tokens := make(map[string]uint64) // the highest of each task
	work := func(name string) func(context.Context, string) error {
		return func(ctx context.Context, task string) error {
			content, _ := worker.Content(ctx)
			token, _ := worker.Token(ctx)
			mu.Lock()
			if other, ok := running[task]; ok {
				t.Errorf("%s runs on %s and %s", task, other.replica, name)
			}
			if token <= tokens[task] {
				t.Errorf("%s: token %d follows %d", task, token, tokens[task])
			}
			tokens[task] = token
			running[task] = given{name, string(content), token}
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			delete(running, task)
			return nil
		}
	}
	counts := func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		n := make(map[string]int)
		for _, g := range running {
			n[g.replica+" "+g.content]++
		}
		return n
	}
	update := make(chan []replica.Task, 1)
	source := func(ctx context.Context, tell func([]replica.Task) error) error {
		for {
			if err := tell(tasks); err != nil {
				return err
			}
			select {
			case tasks = <-update:
			case <-ctx.Done():
				return nil
			}
		}
	}
	var log safeBuffer
	start := func(name string) (stop func() error) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- replica.Run(ctx, table, source, work(name), replica.WithName(name), replica.WithLease(3*time.Second, 200*time.Millisecond),
				replica.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		}()
		return func() error { cancel(); return <-done }
	}
	stopA := start("A")
	require.Eventually(t, func() bool { return counts()["A v1"] == 6 }, time.Minute, 20*time.Millisecond, "%s", &log)
	stopB := start("B")
	require.Eventually(t, func() bool { c := counts(); return c["A v1"] == 3 && c["B v1"] == 3 }, time.Minute, 20*time.Millisecond, "%s", &log)

	next := make([]replica.Task, 6)
	for i := range next {
		next[i] = replica.Task{Name: string(rune('a' + i)), Content: []byte("v2"), Version: 2}
	}
	mu.Lock()
	clear(tokens) // an update restarts a task in place, under its token
	mu.Unlock()
	update <- next
	require.Eventually(t, func() bool { c := counts(); return c["A v2"] == 3 && c["B v2"] == 3 }, time.Minute, 20*time.Millisecond, "%s", &log)

	require.NoError(t, stopA()) // the leader
	require.Eventually(t, func() bool { return counts()["B v2"] == 6 }, time.Minute, 20*time.Millisecond, "%s", &log)
	require.NoError(t, stopB())
	require.Empty(t, counts())
}

// safeBuffer is a bytes.Buffer for several goroutines.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
