package main

// Reasons for missing workers: from a plan, and as each process reports them.

import (
	"errors"
	"net/http"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/examples/allocator/api"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

func TestShortages_OfAPlan(t *testing.T) {
	a, b := replica.WorkerID{Name: "a"}, replica.WorkerID{Name: "b"}
	full := errors.New("no space left")
	start := orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonMissing}
	plan := orchestrator.Plan[replica.WorkerID, string]{
		Waiting: []orchestrator.Waiting[replica.WorkerID, string]{
			{Task: "held", Instances: 1, Reason: orchestrator.ReasonHeld, Worker: a, Named: true},
			{Task: "paused", Instances: 2, Reason: orchestrator.ReasonPaused},
			{Task: "two", Instances: 1, Reason: orchestrator.ReasonNeverAnswered, Worker: a, Named: true},
			{Task: "two", Instances: 1, Reason: orchestrator.ReasonNoOtherWorker},
			{Task: "failed", Instances: 1, Reason: orchestrator.ReasonFailed, Worker: b, Named: true},
			{Task: "skipped", Instances: 1, Reason: orchestrator.ReasonSkipped, Worker: b, Named: true},
		},
		Paused: []orchestrator.Pause[replica.WorkerID, string]{
			{Kind: orchestrator.PauseWorker, Worker: a, Until: 3, Err: full},
			{Kind: orchestrator.PauseTask, Worker: b, Task: "paused", Until: 17, Err: full},
		},
		Changes: []orchestrator.Change[replica.WorkerID, string]{
			{Kind: start, Task: "done", To: a, Outcome: orchestrator.OutcomeDone},
			{Kind: start, Task: "failed", To: b, Outcome: orchestrator.OutcomeFailed, Err: full},
			{Kind: start, Task: "skipped", To: b, Outcome: orchestrator.OutcomeSkipped},
			{Kind: orchestrator.ChangeKind{Op: orchestrator.Stop}, Task: "stopped", From: b, Outcome: orchestrator.OutcomeFailed, Err: full},
		},
	}
	for id, want := range map[string][]api.Waiting{
		"held":    {{Instances: 1, Reason: "held", Worker: "a"}},
		"paused":  {{Instances: 2, Reason: "paused", Detail: "b, retry in term 17: no space left"}},
		"two":     {{Instances: 1, Reason: "never answered", Worker: "a"}, {Instances: 1, Reason: "no other worker"}},
		"failed":  {{Instances: 1, Reason: "failed", Worker: "b", Detail: "no space left"}},
		"skipped": {{Instances: 1, Reason: "skipped", Worker: "b"}},
		"done":    nil,
	} {
		require.Equal(t, want, waitingFor(plan, id), id)
	}
}

// Every process knows the reasons, also if it does not lead, and when the leader is another one.
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
	require.Equal(t, http.StatusCreated, a.ask("PUT", "/work/x?instances=3", "x", nil))
	tells(a, api.Waiting{Instances: 3, Reason: "no leader"})
	a.line("msg=leads")
	tells(a, api.Waiting{Instances: 2, Reason: "no other worker"})
	b := start(t, "b", "-etcd", server.Endpoint())
	b.line("has joined")
	for _, p := range []*process{a, b} {
		tells(p, api.Waiting{Instances: 1, Reason: "no other worker"})
	}
	a.signal(syscall.SIGTERM)
	b.line("msg=leads")
	require.NoError(t, a.ended())
	tells(b, api.Waiting{Instances: 2, Reason: "no other worker"})
	require.Equal(t, http.StatusOK, b.ask("PUT", "/work/x?instances=1", "", nil))
	tells(b)
}
