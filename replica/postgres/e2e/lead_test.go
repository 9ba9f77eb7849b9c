package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

const candidateRole = "candidate"

// runCandidate is the main function of a process that calls replica.Lead.
func runCandidate(s settings) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	j, pool, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	return replica.Lead(ctx, postgres.New(pool, "candidates"), func(leading context.Context, epoch uint64) error {
		event := proctest.Event{Kind: proctest.Started, Task: "lead", Token: epoch}
		if err := j.Write(event); err != nil {
			return err
		}
		<-leading.Done()
		if event.Kind = proctest.Stopped; ctx.Err() == nil && !errors.Is(context.Cause(leading), orchestrator.ErrDeposed) {
			return errors.New("ended for another reason")
		}
		return j.Write(event)
	}, replica.WithName(s.Name), replica.WithLease(s.Lease, s.Stop), replica.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
}

// TestLead kills, stops and ends the leader of three processes in turn. Another one leads, with a
// higher epoch, and never at the same time as one that was not stopped past its lease.
func TestLead(t *testing.T) {
	t.Parallel() // it mostly waits
	c := &cluster{Group: proctest.NewGroup(t), waited: proctest.MeasureWaiting(t), counts: make(map[string]int)}
	url := pgtest.Start(t).URL(pgtest.User, database)
	for i := range 3 {
		s := settings{Name: fmt.Sprint("p", i), URL: url, Journal: c.Path(), Lease: lease, Stop: stop}
		c.replicas = append(c.replicas, c.Start(s.Name, candidateRole, s))
	}
	epoch := uint64(0)
	leader := func(what string, within time.Duration) *proctest.Process {
		var last *proctest.Run
		c.Wait(what, within, func() bool {
			c.Look()
			runs := c.History.Runs()
			if len(runs) > 0 {
				last = runs[len(runs)-1]
			}
			return last != nil && last.Token != epoch
		})
		require.Greater(t, last.Token, epoch)
		epoch = last.Token
		return c.replicas[slices.IndexFunc(c.replicas, func(p *proctest.Process) bool { return p.Name == last.Node })]
	}
	first := leader("the first leader", time.Minute)
	for range max(*rounds/2, 1) {
		first.Leave()
		second := leader("a leader after a resignation", lease/2)
		second.Kill()
		third := leader("a leader after a death", bound)
		c.Restart()
		c.Pass(lease / 2) // they join
		third.Pause()
		first = leader("a leader beside one that is stopped", bound)
		waited := c.waited()
		third.Resume()
		c.Wait("the process that was stopped ends", bound, func() bool { return !third.Alive() })
		c.Look()
		require.Empty(t, judge(c.History, c.Events, c.waited()-waited).violations, c.Logs())
		c.Restart()
	}
	for _, e := range c.Events {
		if e.Kind == proctest.Died {
			require.Contains(t, []string{"exit status 0", "exit status 3", "signal: killed"}, e.Text, c.Logs())
		}
	}
}
