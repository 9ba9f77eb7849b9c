package main

// Why tasks have fewer workers than requested, as far as this process knows.

import (
	"fmt"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/examples/allocator/api"
)

// Reasons in addition to those of a plan.
const (
	reasonNoLeader  = "no leader"       // no process leads, so no task is started
	reasonAskLeader = "ask the leader"  // only the leader has a plan; it is another process
	reasonNoTerm    = "not yet planned" // no term has ended since the task or its number of instances changed
	reasonStart     = "start "          // followed by the outcome
)

// shortages holds the missing instances of each task after the leader's last term,
// with reasons. It is immutable.
type shortages struct{ byTask map[string][]api.Waiting }

func newShortages(p orchestrator.Plan[etcd.Worker, string]) *shortages {
	s := &shortages{byTask: map[string][]api.Waiting{}}
	failures := map[string]string{}
	for _, pause := range p.Paused {
		if pause.Task != "" {
			failures[pause.Task] = fmt.Sprintf("%s, retry in term %d: %v", pause.Worker.Name, pause.Until, pause.Err)
		}
	}
	for _, w := range p.Waiting {
		waiting := api.Waiting{Instances: w.Instances, Reason: string(w.Reason), Worker: w.Worker.Name}
		if w.Reason == orchestrator.ReasonPaused {
			waiting.Detail = failures[w.Task]
		}
		s.byTask[w.Task] = append(s.byTask[w.Task], waiting)
	}
	for _, c := range p.Changes {
		if c.Kind.Op != orchestrator.Start || c.Outcome == orchestrator.OutcomeDone {
			continue
		}
		waiting := api.Waiting{Instances: 1, Reason: reasonStart + string(c.Outcome), Worker: c.To.Name}
		if c.Err != nil {
			waiting.Detail = c.Err.Error()
		}
		s.byTask[c.Task] = append(s.byTask[c.Task], waiting)
	}
	return s
}

func (c cluster) Waiting(id string, missing int) []api.Waiting {
	waiting := api.Waiting{Instances: missing}
	s, leader := c.shortages.Load(), c.leader.Load()
	switch {
	case s != nil && s.byTask[id] != nil:
		return s.byTask[id]
	case s != nil:
		waiting.Reason = reasonNoTerm
	case leader != nil:
		waiting.Reason, waiting.Worker = reasonAskLeader, *leader
	default:
		waiting.Reason = reasonNoLeader
	}
	return []api.Waiting{waiting}
}
