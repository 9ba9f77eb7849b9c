package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
)

func TestTheViewTellsWhatChangesAndWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type change = orchestrator.Change[grpc.WorkerID, string]
		w1, w2 := grpc.WorkerID{Name: "w1", Incarnation: 5}, grpc.WorkerID{Name: "w2", Incarnation: 6}
		missing := orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonMissing}
		unexpected := orchestrator.ChangeKind{Op: orchestrator.Stop, Reason: orchestrator.ReasonUnexpected}
		drain := orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonDrain}
		done := orchestrator.OutcomeDone
		var out strings.Builder
		v := &view{out: &out, began: time.Now()}
		v.chapter("1/1  w2 leaves")
		v.term(plan{})
		time.Sleep(1500 * time.Millisecond)
		v.term(plan{Changes: []change{
			{Kind: drain, Task: "follow/b", From: w2, To: w1, Outcome: orchestrator.OutcomeReturned, Err: errors.New("no room")},
			{Kind: drain, Task: "follow/a", From: w2, To: w1, Outcome: done},
			{Kind: unexpected, Task: "count/c", From: w1, Outcome: done},
			{Kind: unexpected, Task: "count/d", From: w1, Outcome: orchestrator.OutcomeFailed, Err: errors.New("gone")},
			{Kind: missing, Task: "count/f/g", To: w2, Outcome: done},
			{Kind: missing, Task: "count/e", To: w2, Outcome: done},
			{Kind: drain, Task: "count/h", From: w2, To: w1, Outcome: orchestrator.OutcomeFailed, Err: fmt.Errorf("not sent: %w", orchestrator.ErrStale)},
		}})
		require.Equal(t, `
   0.0s  1/1  w2 leaves
   1.5s  move  w2 → w1 (drain): a
   1.5s  move  w2 → w1 (drain), returned: no room: b
   1.5s  move  w2 → w1 (drain), skipped: task has completed: h
   1.5s  start on w2 (missing): e f/g
   1.5s  stop  on w1 (unexpected), failed: gone: d
`, out.String())
	})
}

func TestNamesThatDoNotFitAreCounted(t *testing.T) {
	t.Parallel()
	require.Empty(t, brief(nil))
	require.Equal(t, "one two", brief([]string{"one", "two"}))
	long := strings.Repeat("x", width)
	require.Equal(t, long+" +2", brief([]string{long, "two", "three"}))
}

func TestCertificatesCanBeLoaded(t *testing.T) {
	t.Parallel()
	f := folder(t.TempDir())
	require.NoError(t, f.make())
	require.NoError(t, certify(f, "w1", "w2"))
	for _, name := range []string{managerName, "w1", "w2"} {
		_, err := credentials(f, name)
		require.NoError(t, err)
	}
	_, err := credentials(f, "w3")
	require.ErrorContains(t, err, "w3.pem")
}
