package etcd_test

// The Member as its users see it: content updates, draining, leaving and refusals.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/worker"
	"github.com/stretchr/testify/require"
)

// withTold makes a worker accept updates in place and record them in the ledger.
func (s *stage) withTold() worker.Option {
	return worker.WithUpdate(func(ctx context.Context, task string) error {
		content, _ := worker.Content(ctx)
		s.ledger.tell(task, string(content))
		return nil
	})
}

func (s *stage) put(task, content string) {
	s.Helper()
	_, err := s.client.Put(s.Context(), "/work/registry/"+task, content)
	require.NoError(s, err)
}

func TestW7_UpdateReachesTheRunningTask(t *testing.T) {
	s := newStage(t)
	w := s.hire(s.client, "a", 5*time.Second, s.withTold()).joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	s.put("t", "one")
	s.put("other", "no worker runs it")
	require.NoError(t, l.add(1, w, "t"))
	s.ledger.wait(t, "t has its content", func(l *ledger) bool { return l.content["t"] == "one" })
	for _, content := range []string{"two", "", "three\x00\xff"} {
		s.put("t", content)
		s.ledger.wait(t, "t is updated", func(l *ledger) bool { return l.content["t"] == content })
	}
	require.Equal(t, 1, s.ledger.started("t"), "updates in place")
	require.NotContains(t, s.ledger.content, "other")
}

// Without an update function, the task is restarted on the same worker.
func TestW7_UpdateRestartsInPlace(t *testing.T) {
	s := newStage(t)
	w := s.hire(s.client, "a", 5*time.Second).joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	s.put("t", "one")
	require.NoError(t, l.add(1, w, "t"))
	s.ledger.wait(t, "t runs", func(l *ledger) bool { return l.content["t"] == "one" })
	s.put("t", "two")
	s.ledger.wait(t, "t is restarted", func(l *ledger) bool { return l.content["t"] == "two" })
	require.Equal(t, 2, s.ledger.started("t"))
	require.Equal(t, []string{"t"}, l.list(2, w))
}

// A change of the content during the claim and the start of its task is never lost.
func TestW7_NothingIsLostBetweenClaimAndWatch(t *testing.T) {
	s := newStage(t)
	w := s.hire(s.client, "a", 5*time.Second, s.withTold()).joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	const tasks = 40
	written := make(chan error, 1)
	go func() { // write while the tasks are added
		for round := range 5 {
			for i := range tasks {
				_, err := s.client.Put(t.Context(), fmt.Sprint("/work/registry/", i), fmt.Sprint(round))
				if err != nil {
					written <- err
					return
				}
			}
		}
		written <- nil
	}()
	var adds []orchestrator.Write[string]
	for i := range tasks {
		adds = append(adds, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: fmt.Sprint(i)})
	}
	ctx, cancel := l.term(1, soon)
	defer cancel()
	require.Nil(t, l.comm.Apply(ctx, w, adds))
	require.NoError(t, receive(t, written))
	s.ledger.wait(t, "all have the last content", func(l *ledger) bool {
		for i := range tasks {
			if l.content[fmt.Sprint(i)] != "4" {
				return false
			}
		}
		return true
	})
}

// A compaction during a disconnect removes the history that the watch needs. The
// content is read again.
func TestW7_UpdateSurvivesACutAndACompaction(t *testing.T) {
	s := newStage(t)
	client, cable := s.behind()
	w := s.hire(client, "a", 20*time.Second, s.withTold()).joined()
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(1, w)
	s.put("t", "one")
	require.NoError(t, l.add(1, w, "t"))
	s.ledger.wait(t, "t runs", func(l *ledger) bool { return l.content["t"] == "one" })
	cable.Cut(netfault.Both)
	s.put("t", "two")
	resp, err := s.client.Put(t.Context(), "/elsewhere", "")
	require.NoError(t, err)
	_, err = s.client.Compact(t.Context(), resp.Header.Revision)
	require.NoError(t, err)
	cable.Reset()
	cable.Heal()
	s.ledger.wait(t, "t is updated", func(l *ledger) bool { return l.content["t"] == "two" })
	require.Equal(t, 1, s.ledger.started("t"))
}

// government is a complete leader as a user would run it.
type government struct {
	registry *etcd.Registry
	stop     func() error
}

// govern runs a leader over the registry and the membership.
func (s *stage) govern(name string) government {
	s.Helper()
	client := s.connect()
	registry, err := etcd.NewRegistry(client)
	require.NoError(s, err)
	members, err := etcd.NewMembership(client)
	require.NoError(s, err)
	election, err := etcd.NewElection(client, name, etcd.WithLeaseDuration(2*time.Second))
	require.NoError(s, err)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(s.Context()))
	done := make(chan error, 1)
	go func() {
		done <- election.Run(ctx, func(ctx context.Context, l *etcd.Leadership) error {
			comm, err := etcd.NewCommunicator(ctx, client, l)
			if err != nil {
				return err
			}
			o, err := orchestrator.New(comm, orchestrator.WithEpoch(l.Epoch()),
				orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved), orchestrator.WithSettle(10*time.Millisecond),
				orchestrator.WithCommunicatorTimeout(2*time.Second))
			if err != nil {
				return err
			}
			if err := errors.Join(registry.Feed(ctx, l, o), members.Feed(ctx, l, o)); err != nil {
				return err
			}
			return o.Run(ctx, 100*time.Millisecond)
		})
	}()
	stop := func() error { cancel(errOver); err := <-done; done <- err; return err }
	s.Cleanup(func() { _ = stop() })
	return government{registry: registry, stop: stop}
}

// on returns the number of tasks that run on a worker.
func (l *ledger) on(worker string) int {
	n := 0
	for _, by := range l.running {
		if strings.HasPrefix(by, worker+"/") {
			n++
		}
	}
	return n
}

func TestW6_CloseWaitsUntilItsTasksHaveMoved(t *testing.T) {
	s := newStage(t)
	g := s.govern("l1")
	a := s.hire(s.connect(), "a", 5*time.Second)
	for i := range 6 {
		_, err := g.registry.Create(t.Context(), etcd.Item{Name: fmt.Sprint(i)})
		require.NoError(t, err)
	}
	s.ledger.wait(t, "a runs all tasks", func(l *ledger) bool { return l.on("a") == 6 })
	s.hire(s.connect(), "b", 5*time.Second)
	s.ledger.wait(t, "a and b share the tasks", func(l *ledger) bool { return l.on("a") == 3 && l.on("b") == 3 })
	require.NoError(t, a.member.Close(within(t, soon)))
	require.NoError(t, a.result())
	s.ledger.wait(t, "b runs all tasks", func(l *ledger) bool { return l.on("a") == 0 && l.on("b") == 6 })
	require.False(t, s.there("/work/members/a"))
	require.NoError(t, a.member.Close(within(t, soon)), "a repeated Close")
}

func TestW6_CloseDoesNotWaitForEver(t *testing.T) {
	s := newStage(t)
	s.staffed()
	a := s.hire(s.connect(), "a", 5*time.Second)
	l := s.elect(s.client, "l1", 5*time.Second)
	require.NoError(t, l.add(1, a.joined(), "t"))
	require.ErrorIs(t, a.member.Close(within(t, 200*time.Millisecond)), context.DeadlineExceeded)
	require.NoError(t, a.result())
	require.Empty(t, s.ledger.snapshot())
	for _, key := range []string{"members/a", "workers/a", "active/a/t", "assigned/a/t"} {
		require.False(t, s.there("/work/"+key), key)
	}
}

// A task that one worker refuses runs on another within two terms.
func TestE5_RefusedTaskRunsElsewhere(t *testing.T) {
	s := newStage(t)
	l := s.elect(s.connect(), "l1", 5*time.Second)
	o, err := orchestrator.New(l.comm, orchestrator.WithEpoch(l.leader.Epoch()),
		orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved))
	require.NoError(t, err)
	for _, name := range []string{"a", "b"} {
		w := s.hire(s.connect(), name, 5*time.Second, worker.WithAccept(func(_ context.Context, task string, _ []byte) error {
			if name == "a" && task == "picky" {
				return errors.New("not here")
			}
			return nil
		})).joined()
		require.NoError(t, o.AddWorker(w))
	}
	require.NoError(t, o.AddTask("picky"))
	for term := 1; ; term++ {
		err := o.NextTerm(t.Context())
		if err == nil {
			break
		}
		require.Less(t, term, 2, "not running after two terms: %v", err)
	}
	s.ledger.wait(t, "b runs it", func(l *ledger) bool { return l.on("b") == 1 })
}

// During an outage of etcd that is longer than the lease, everything stops. It runs
// again after the outage without help.
func TestE8_EtcdAway(t *testing.T) {
	s := newStage(t)
	g := s.govern("l1")
	cut := make([]*netfault.Proxy, 0, 2)
	for _, name := range []string{"a", "b"} {
		client, cable := s.behind()
		s.hire(client, name, 2*time.Second)
		cut = append(cut, cable)
	}
	for i := range 4 {
		_, err := g.registry.Create(t.Context(), etcd.Item{Name: fmt.Sprint(i)})
		require.NoError(t, err)
	}
	s.ledger.wait(t, "everything runs", func(l *ledger) bool { return len(l.running) == 4 })
	for _, cable := range cut {
		cable.Refuse()
	}
	s.ledger.wait(t, "everything has stopped", func(l *ledger) bool { return len(l.running) == 0 })
	for _, cable := range cut {
		cable.Heal()
	}
	s.ledger.wait(t, "everything runs", func(l *ledger) bool { return len(l.running) == 4 })
}

func TestMember_BadInput(t *testing.T) {
	s := newStage(t)
	run := func(ctx context.Context, _ string) error { <-ctx.Done(); return nil }
	leaseless, err := worker.New(run)
	require.NoError(t, err)
	odd, err := worker.New(run, worker.WithLease(2500*time.Millisecond, time.Second))
	require.NoError(t, err)
	fine, err := worker.New(run, worker.WithLease(5*time.Second, time.Second))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		name   string
		worker *worker.Worker[string]
		opts   []etcd.MemberOption
		want   string
	}{
		"no name":  {"", fine, nil, "name"},
		"no lease": {"a", leaseless, nil, "WithLease"},
		"odd":      {"a", odd, nil, "2.5s"},
		"prefix":   {"a", fine, []etcd.MemberOption{etcd.WithPrefix("nope")}, "nope"},
		"nil":      {"a", fine, []etcd.MemberOption{nil}, "nil"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := etcd.NewMember(s.client, c.name, c.worker, c.opts...)
			require.ErrorIs(t, err, orchestrator.ErrInvalid)
			require.ErrorContains(t, err, c.want)
		})
	}
	m, err := etcd.NewMember(newClient(t, clientConfig(nowhere(t))), "a", fine, etcd.WithDialTimeout(20*time.Millisecond))
	require.NoError(t, err)
	require.ErrorIs(t, m.Run(within(t, 100*time.Millisecond)), context.DeadlineExceeded)
	require.ErrorIs(t, m.Run(t.Context()), orchestrator.ErrInvalid, "a second Run")
	require.NoError(t, m.Close(t.Context()))
}

// The values of the protocol are readable with etcdctl.
func TestE1_WhatTheProtocolWrites(t *testing.T) {
	s := newStage(t)
	w := s.hire(s.client, "a b", 5*time.Second).joinedAs("a%20b")
	l := s.elect(s.connect(), "l1", 5*time.Second)
	l.list(3, w)
	require.NoError(t, l.add(3, w, "t/1"))
	value := func(key string) string {
		resp, err := s.client.Get(t.Context(), "/work/"+key)
		require.NoError(t, err)
		require.Len(t, resp.Kvs, 1, key)
		if key != "term" && key != "begun" {
			require.NotZero(t, resp.Kvs[0].Lease, key)
		}
		return string(resp.Kvs[0].Value)
	}
	require.Equal(t, "3", value("term"))
	require.Equal(t, "3", value("begun"))
	require.JSONEq(t, fmt.Sprintf(`{"epoch":%d,"term":3,"member":%d}`, l.leader.Epoch(), w.Incarnation), value("assigned/a%20b/t%2F1"))
	require.Regexp(t, `^\{"incarnation":"\d+"\}$`, value("active/a%20b/t%2F1"))
	s.eventually("the load is written", func() bool { return value("workers/a%20b") == "000001" })
}
