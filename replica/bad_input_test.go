package replica_test

// What a replica makes of bad input: it says in one line what is wrong and what to do, and
// no task is lost or runs twice.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
)

// logged returns the lines of the log that contain a text.
func (c *cluster) logged(text string) (lines []string) {
	for line := range strings.Lines(c.log.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestBadInput_LoopbackAlone(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		c.start("a")
		c.start("b")
		c.spread(2*testLease, map[string]int{"a": 6, "b": 6})
		require.Len(t, c.logged("level=WARN msg=\"replicas on other machines cannot call this one"), 2)
		require.Len(t, c.logged("WARN"), 2, "%s", &c.log)
	})
}

func TestBadInput_LoopbackAmongOthers(t *testing.T) {
	for _, joins := range []string{"loopback", "other"} {
		t.Run(joins+" joins", func(t *testing.T) {
			inBubble(t, 12, func(c *cluster, _ *faultyTable) {
				c.bus.hosts["a"], c.bus.hosts["b"] = "10.0.0.1", "10.0.0.2"
				if joins == "other" {
					c.start("c")
					c.spread(2*testLease, map[string]int{"c": 12})
				}
				c.start("a")
				c.start("b")
				if joins == "loopback" {
					c.spread(2*testLease, map[string]int{"a": 6, "b": 6})
					c.start("c")
				}
				ended := c.members["c"]
				delete(c.members, "c")
				began := time.Now()
				err := <-ended.done
				require.Less(t, time.Since(began), testLease/4)
				require.ErrorIs(t, err, orchestrator.ErrInvalid)
				require.ErrorContains(t, err, "other replicas cannot call this one: its address is 127.0.0.1:")
				require.ErrorContains(t, err, "is at 10.0.0.")
				require.ErrorContains(t, err, "give WithCredentials or WithPlaintext, or WithListen and WithAdvertise")
				c.spread(testLease, map[string]int{"a": 6, "b": 6})
				require.Less(t, time.Since(began), testLease/3, "its record is removed, nothing waits for it")
			})
		})
	}
}

// The record of a process that has ended is no reason not to start.
func TestBadInput_LoopbackAfterACrash(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		_, err := table.Sync(c.t.Context(), replica.Update{Self: replica.Member{ID: 1, Heartbeat: 9, Lease: testLease, Name: "old", Address: "10.0.0.1:7000"}})
		require.NoError(t, err)
		c.start("a")
		c.spread(2*testLease, map[string]int{"a": 12})
	})
}

func TestBadInput_Source(t *testing.T) {
	full := make([]replica.Task, 12)
	for i := range full {
		full[i].Name = fmt.Sprintf("task-%02d", i)
	}
	for name, test := range map[string]struct {
		// then is what the Source does after it has told 12 tasks for a while.
		then  func(ctx context.Context, tell func([]replica.Task) error) error
		lines string // in the log, at Warn or Error
		tasks int    // that run afterwards
	}{
		"fails": {
			func(context.Context, func([]replica.Task) error) error { return errors.New("connection refused") },
			`ERROR msg="source of the tasks failed: they stay as they are, and it is called again" replica=a err="connection refused"`, 12,
		},
		"panics": {
			func(context.Context, func([]replica.Task) error) error { panic("index out of range") },
			`ERROR msg="source of the tasks failed: they stay as they are, and it is called again" replica=a err="panic: index out of range"`, 12,
		},
		"returns": {
			func(context.Context, func([]replica.Task) error) error { return nil },
			`ERROR msg="source of the tasks failed: they stay as they are, and it is called again" replica=a err="source returned before its context ended"`, 12,
		},
		"lies, and ignores the error": {
			func(ctx context.Context, tell func([]replica.Task) error) error {
				for range 3 {
					_ = tell(append(full[:12:12], full[3]))
				}
				<-ctx.Done()
				return nil
			},
			`ERROR msg="source told invalid tasks: all tasks stay as they are until it tells valid ones" replica=a err="update tasks: invalid: task task-03 is given twice, at 3 and at 12"`, 12,
		},
		"lies, and returns the error": {
			func(_ context.Context, tell func([]replica.Task) error) error {
				return fmt.Errorf("tenants: %w", tell([]replica.Task{{Name: ""}}))
			},
			`ERROR msg="source told invalid tasks: all tasks stay as they are until it tells valid ones" replica=a err="task \"\": invalid: its name has 0 bytes: must have from 1 to 1024"`, 12,
		},
		"tells an empty list": {
			func(ctx context.Context, tell func([]replica.Task) error) error {
				err := tell(nil)
				<-ctx.Done()
				return err
			},
			`WARN msg="source told an empty list: all tasks stop" replica=a before=12`, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 12, func(c *cluster, _ *faultyTable) {
				calls := 0
				c.source = func(ctx context.Context, tell func([]replica.Task) error) error {
					calls++
					if err := tell(full); err != nil || calls > 1 {
						<-ctx.Done()
						return err
					}
					select {
					case <-time.After(testLease):
						return test.then(ctx, tell)
					case <-ctx.Done():
						return nil
					}
				}
				c.bus.hosts["a"] = "10.0.0.1"
				c.start("a")
				c.spread(2*testLease, map[string]int{"a": 12})
				starts := c.journal.started()
				time.Sleep(2 * testLease)
				n := 0
				for line := range strings.Lines(c.log.String()) {
					if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
						require.Contains(t, line, test.lines)
						n++
					}
				}
				require.Equal(t, 1, n, "%s", &c.log)
				require.Equal(t, test.tasks, c.journal.counts()["a"])
				require.Equal(t, starts, c.journal.started(), "no task was restarted")
			})
		})
	}
}

func TestBadInput_ASourceThatFailsAgainAndAgain(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		good, calls := c.source, 0
		c.source = func(ctx context.Context, tell func([]replica.Task) error) error {
			if calls++; calls < 10 {
				return errors.New("connection refused")
			}
			return good(ctx, tell)
		}
		c.start("a")
		c.spread(5*testLease, map[string]int{"a": 12})
		lines := c.logged("source of the tasks failed")
		require.Greater(t, calls, 9)
		require.Less(t, len(lines), 5, "%s", &c.log)
		require.Contains(t, lines[1], " omitted=")
		require.Len(t, c.logged("source succeeds again"), 1)
	})
}

// A new leader does not know how many tasks there were.
func TestBadInput_TheSourceOfANewLeaderTellsAnEmptyList(t *testing.T) {
	inBubble(t, 12, func(c *cluster, _ *faultyTable) {
		c.start("a")
		c.spread(2*testLease, map[string]int{"a": 12})
		c.source = replica.Names()
		c.start("b")
		c.spread(testLease, map[string]int{"a": 6, "b": 6})
		require.Empty(t, c.logged("empty list"))
		require.NoError(t, c.end("a"))
		c.spread(testLease, map[string]int{})
		require.Len(t, c.logged("level=WARN msg=\"source told an empty list: all tasks stop\" replica=b before=0"), 1)
	})
}

func TestBadInput_ASourceThatIgnoresItsContext(t *testing.T) {
	inBubble(t, 12, func(c *cluster, table *faultyTable) {
		good, release := c.source, make(chan struct{})
		c.source = func(_ context.Context, tell func([]replica.Task) error) error {
			ctx, stop := context.WithCancel(c.t.Context())
			defer stop()
			go func() { <-release; stop() }()
			return good(ctx, tell)
		}
		c.three()
		leader := c.leader()
		table.set(func() { table.cut[leader] = true }) // it leads no longer, and lives
		c.within("the others run everything", c.runs(c.others(leader)...))
		table.set(func() { table.cut[leader] = false })
		c.within("it has rejoined", c.runs("a", "b", "c"))
		time.Sleep(testLease)
		require.Len(t, c.logged("source of the tasks has not returned though its context ended: it must watch it"), 1)
		began := time.Now()
		require.NoError(t, c.end(leader))
		require.Less(t, time.Since(began), time.Second, "Run does not wait for it")
		close(release)
	})
}
