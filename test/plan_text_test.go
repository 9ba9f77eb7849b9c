package test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// A plan in words and in JSON.

// samplePlan has one of everything.
func samplePlan() plan {
	kind := func(op orchestrator.ChangeOp, r orchestrator.Reason) orchestrator.ChangeKind {
		return orchestrator.ChangeKind{Op: op, Reason: r}
	}
	return plan{
		Stats: orchestrator.TermStats{
			Term:  orchestrator.Term{Epoch: 7, Number: 42},
			Start: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			Changes: map[orchestrator.ChangeKind]int{
				kind(orchestrator.Start, orchestrator.ReasonMissing): 1,
				kind(orchestrator.Move, orchestrator.ReasonDrain):    1,
				kind(orchestrator.Stop, orchestrator.ReasonSurplus):  1,
			},
			Adds: 2, LowerBound: 2, Deferred: 3, MassLoss: true, Err: errBoom,
		},
		Changes: []change{
			{Kind: kind(orchestrator.Start, orchestrator.ReasonMissing), Task: "a", To: "w1", Outcome: orchestrator.OutcomeDone},
			{Kind: kind(orchestrator.Move, orchestrator.ReasonDrain), Task: "bb", From: "w1", To: "w2", Outcome: orchestrator.OutcomeReturned, Err: errBoom},
			{Kind: kind(orchestrator.Stop, orchestrator.ReasonSurplus), Task: "c", From: "w3", Outcome: orchestrator.OutcomeDone},
		},
		Waiting: []waiting{
			{Task: "d", Instances: 2, Reason: orchestrator.ReasonNoWorker},
			{Task: "e", Instances: 1, Reason: orchestrator.ReasonHeld, Worker: "w3", Named: true},
		},
		Paused: []pause{
			{Kind: orchestrator.PauseWorker, Worker: "w4", Until: 44, Failures: 1, Err: errBoom},
			{Kind: orchestrator.PauseTask, Worker: "w1", Task: "g", Until: 48, Failures: 2, Err: errBoom},
			{Kind: orchestrator.PauseStart, Worker: "w4", Task: "f", Until: 50, Failures: 3, Err: errBoom},
			{Kind: orchestrator.PauseStop, Worker: "w5", Task: "h", Until: 43, Failures: 1, Err: errBoom},
			{Kind: orchestrator.PauseMoves, Until: 44, Failures: 1, Err: errBoom},
		},
		Workers: []orchestrator.WorkerPlan[string]{
			{Name: "w1", State: orchestrator.Answering, Draining: true, Before: 5, After: 4},
			{Name: "w3", State: orchestrator.Silent, Before: 2, After: 2},
			{Name: "w4", State: orchestrator.Answering, Quarantined: true},
			{Name: "w2", State: orchestrator.Answering, Late: true, Before: 1, After: 2},
			{Name: "w5", State: orchestrator.Lost},
		},
	}
}

func TestPlan_String(t *testing.T) {
	want := strings.TrimPrefix(`
term 42: 3 changes: 1 move (drain), 1 start (missing), 1 stop (surplus); 2 starts, at least 2 needed; 2 waiting; 3 moves left for later; too many workers silent at once, none declared lost

change  task  from  to  reason   outcome
start   a     -     w1  missing  done
move    bb    w1    w2  drain    returned: boom
stop    c     w3    -   surplus  done

waiting  task  instances  worker  reason
         d     2          -       no open worker
         e     1          w3      held

paused  worker  task  until term  failures  last failure
worker  w4      -     44          1         boom
task    w1      g     48          2         boom
start   w4      f     50          3         boom
stop    w5      h     43          1         boom
moves   -       -     44          1         boom

worker  state                   before  after
w1      answering, draining     5       4
w3      silent                  2       2
w4      answering, quarantined  0       0
w2      answering, late         1       2
w5      lost                    0       0
`, "\n")
	require.Equal(t, want, samplePlan().String())
	require.Equal(t, want, fmt.Sprint(samplePlan()))

	single := samplePlan()
	single.Changes, single.Stats.Adds, single.Stats.Deferred = single.Changes[:1], 1, 1
	require.Contains(t, single.String(), "1 change: ")
	require.Contains(t, single.String(), "; 1 start, at least 2 needed;")
	require.Contains(t, single.String(), "; 1 move left for later;")
}

// Long tables are cut off, and say so.
func TestPlan_StringIsBounded(t *testing.T) {
	p := plan{}
	for _, name := range names("t", 1000) {
		p.Changes = append(p.Changes, change{Kind: orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonMissing}, Task: name, To: "w1"})
	}
	text := p.String()
	require.Contains(t, text, "t50 ")
	require.NotContains(t, text, "t51 ")
	require.Contains(t, text, "… and 950 more\n")
}

func TestPlan_JSON(t *testing.T) {
	text, err := json.Marshal(samplePlan())
	require.NoError(t, err)
	require.JSONEq(t, `{
		"stats": {
			"term": {"epoch": 7, "number": 42},
			"start": "2026-01-02T03:04:05Z",
			"listing_ns": 0, "planning_ns": 0, "writing_ns": 0, "total_ns": 0,
			"workers": {"answering": 0, "silent": 0, "lost": 0, "draining": 0, "late": 0, "quarantined": 0, "stuck": 0},
			"instances": {"wanted": 0, "running": 0, "held": 0, "missing": 0, "unplaceable": 0, "unexpected": 0, "duplicate": 0},
			"changes": {"move/drain": 1, "start/missing": 1, "stop/surplus": 1},
			"cut": false,
			"deferred": 3, "adds": 2, "lower_bound": 2, "spread": 0,
			"list": `+noCalls+`, "add": `+noCalls+`, "remove": `+noCalls+`, "apply": `+noCalls+`,
			"mass_loss": true,
			"err": "boom"
		},
		"changes": [
			{"op": "start", "reason": "missing", "task": "a", "to": "w1", "outcome": "done"},
			{"op": "move", "reason": "drain", "task": "bb", "from": "w1", "to": "w2", "outcome": "returned", "err": "boom"},
			{"op": "stop", "reason": "surplus", "task": "c", "from": "w3", "outcome": "done"}
		],
		"waiting": [
			{"task": "d", "instances": 2, "reason": "no open worker"},
			{"task": "e", "instances": 1, "reason": "held", "worker": "w3"}
		],
		"paused": [
			{"kind": "worker", "worker": "w4", "until_term": 44, "failures": 1, "err": "boom"},
			{"kind": "task", "worker": "w1", "task": "g", "until_term": 48, "failures": 2, "err": "boom"},
			{"kind": "start", "worker": "w4", "task": "f", "until_term": 50, "failures": 3, "err": "boom"},
			{"kind": "stop", "worker": "w5", "task": "h", "until_term": 43, "failures": 1, "err": "boom"},
			{"kind": "moves", "until_term": 44, "failures": 1, "err": "boom"}
		],
		"workers": [
			{"name": "w1", "state": "answering", "draining": true, "before": 5, "after": 4},
			{"name": "w3", "state": "silent", "before": 2, "after": 2},
			{"name": "w4", "state": "answering", "quarantined": true, "before": 0, "after": 0},
			{"name": "w2", "state": "answering", "late": true, "before": 1, "after": 2},
			{"name": "w5", "state": "lost", "before": 0, "after": 0}
		]
	}`, string(text))
}
