package main

// Reasons for missing workers: from a plan, and as each process reports them.

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/examples/allocator/api"
)

func TestShortages_OfAPlan(t *testing.T) {
	a, b := etcd.WorkerID{Name: "a"}, etcd.WorkerID{Name: "b"}
	full := errors.New("no space left")
	start := orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonMissing}
	s := newShortages(orchestrator.Plan[etcd.WorkerID, string]{
		Waiting: []orchestrator.Waiting[etcd.WorkerID, string]{
			{Task: "held", Instances: 1, Reason: orchestrator.ReasonHeld, Worker: a, Named: true},
			{Task: "paused", Instances: 2, Reason: orchestrator.ReasonPaused},
			{Task: "two", Instances: 1, Reason: orchestrator.ReasonNeverAnswered, Worker: a, Named: true},
			{Task: "two", Instances: 1, Reason: orchestrator.ReasonNoOtherWorker},
			{Task: "failed", Instances: 1, Reason: orchestrator.ReasonFailed, Worker: b, Named: true},
			{Task: "skipped", Instances: 1, Reason: orchestrator.ReasonSkipped, Worker: b, Named: true},
		},
		Paused: []orchestrator.Pause[etcd.WorkerID, string]{
			{Kind: orchestrator.PauseWorker, Worker: a, Until: 3, Err: full},
			{Kind: orchestrator.PauseTask, Worker: b, Task: "paused", Until: 17, Err: full},
		},
		Changes: []orchestrator.Change[etcd.WorkerID, string]{
			{Kind: start, Task: "done", To: a, Outcome: orchestrator.OutcomeDone},
			{Kind: start, Task: "failed", To: b, Outcome: orchestrator.OutcomeFailed, Err: full},
			{Kind: start, Task: "skipped", To: b, Outcome: orchestrator.OutcomeSkipped},
			{Kind: orchestrator.ChangeKind{Op: orchestrator.Stop}, Task: "stopped", From: b, Outcome: orchestrator.OutcomeFailed, Err: full},
		},
	})
	require.Equal(t, map[string][]api.Waiting{
		"held":    {{Instances: 1, Reason: "held", Worker: "a"}},
		"paused":  {{Instances: 2, Reason: "paused", Detail: "b, retry in term 17: no space left"}},
		"two":     {{Instances: 1, Reason: "never answered", Worker: "a"}, {Instances: 1, Reason: "no other worker"}},
		"failed":  {{Instances: 1, Reason: "failed", Worker: "b", Detail: "no space left"}},
		"skipped": {{Instances: 1, Reason: "skipped", Worker: "b"}},
	}, s.byTask)
}

func TestShortages_AreToldByEachProcess(t *testing.T) {
	server := startEtcd(t, embed.Config{})
	tells := func(p *process, want ...api.Waiting) {
		t.Helper()
		var got struct{ Waiting []api.Waiting }
		p.until(func() bool {
			got.Waiting = nil
			require.Equal(t, http.StatusOK, p.ask("GET", "/work/x", "", &got))
			return len(got.Waiting) == len(want) && (len(want) == 0 || got.Waiting[0] == want[0])
		}, func() string { return p.name + " does not report it" })
	}
	a := start(t, "a", "-etcd", server.Endpoint())
	a.line("a leads")
	require.Equal(t, http.StatusCreated, a.ask("PUT", "/work/x?instances=3", "x", nil))
	tells(a, api.Waiting{Instances: 2, Reason: "no other worker"})

	b := start(t, "b", "-etcd", server.Endpoint())
	tells(a, api.Waiting{Instances: 1, Reason: "no other worker"})
	tells(b, api.Waiting{Instances: 1, Reason: "ask the leader", Worker: "a"})

	// A former leader does not use the plan of its last term.
	client, err := clientv3.New(etcd.ClientConfig(server.Endpoint()))
	require.NoError(t, err)
	defer client.Close()
	leader, err := client.Get(t.Context(), "/work/leader/", clientv3.WithFirstCreate()...)
	require.NoError(t, err)
	require.Equal(t, "a", string(leader.Kvs[0].Value))
	_, err = client.Delete(t.Context(), string(leader.Kvs[0].Key))
	require.NoError(t, err)
	tells(b, api.Waiting{Instances: 1, Reason: "no other worker"})
	tells(a, api.Waiting{Instances: 1, Reason: "ask the leader", Worker: "b"})

	require.Equal(t, http.StatusOK, b.ask("PUT", "/work/x?instances=2", "", nil))
	tells(a)
	tells(b)
}

func TestShortages_WithoutALeader(t *testing.T) {
	c := cluster{&node{}}
	require.Equal(t, []api.Waiting{{Instances: 2, Reason: "no leader"}}, c.Waiting("x", 2))
	c.shortages.Store(&shortages{})
	require.Equal(t, []api.Waiting{{Instances: 2, Reason: "not yet planned"}}, c.Waiting("x", 2))
}
