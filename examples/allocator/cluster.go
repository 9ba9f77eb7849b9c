package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/examples/allocator/api"
	"github.com/f8949c05/orchestrator/replica"
)

// cluster implements api.Cluster with the replica. Each process answers, also if it does not lead.
type cluster struct{ *replica.Replica }

func (c cluster) Owners(id string) []string {
	var names []string
	for _, o := range c.Replica.Owners(id) {
		names = append(names, o.Name)
	}
	return names
}

func (c cluster) Fleet() (api.Fleet, error) {
	has := map[uint64][]string{}
	if last := c.Last(); last != nil {
		for w := range last.Workers() {
			has[w.Name.ID] = slices.Sorted(slices.Values(w.Tasks))
		}
	}
	s := c.Status()
	fleet := api.Fleet{Leader: s.Leader, Epoch: s.Epoch}
	for _, m := range s.Members {
		w := api.Worker{Name: m.Name, State: "ready", Tasks: append([]string{}, has[m.ID]...)}
		if m.Draining {
			w.State = "draining"
		}
		fleet.Workers = append(fleet.Workers, w)
	}
	slices.SortStableFunc(fleet.Workers, func(a, b api.Worker) int { return strings.Compare(a.Name, b.Name) })
	return fleet, c.Ready()
}

// Ready returns an error if the last call to etcd has failed, or if the process holds no lease.
func (c cluster) Ready() error {
	if text := c.Status().Err; text != "" {
		return errors.New(text)
	}
	return c.Replica.Ready()
}

// Reasons in addition to those of a plan.
const (
	reasonNoLeader = "no leader"       // no process leads, so no task is started
	reasonNoTerm   = "not yet planned" // no term has ended since the task or its number of instances changed
)

func (c cluster) Waiting(id string, missing int) []api.Waiting {
	if c.Status().Leader == "" {
		return []api.Waiting{{Instances: missing, Reason: reasonNoLeader}}
	}
	if last := c.Last(); last != nil {
		if all := waitingFor(last.Plan(), id); all != nil {
			return all
		}
	}
	return []api.Waiting{{Instances: missing, Reason: reasonNoTerm}}
}

// waitingFor returns why a plan leaves instances of a task missing.
func waitingFor(plan orchestrator.Plan[replica.WorkerID, string], id string) (all []api.Waiting) {
	for _, w := range plan.Waiting {
		if w.Task != id {
			continue
		}
		waiting := api.Waiting{Instances: w.Instances, Reason: string(w.Reason), Worker: w.Worker.Name, Detail: failure(plan, id)}
		if w.Causes != nil {
			waiting.Detail = w.Causes.String()
		}
		all = append(all, waiting)
	}
	return all
}

// failure returns the latest failure to start a task, or "".
func failure(plan orchestrator.Plan[replica.WorkerID, string], id string) string {
	for _, c := range plan.Changes {
		if c.Task == id && c.Err != nil && c.Kind.Op != orchestrator.Stop {
			return c.Err.Error()
		}
	}
	for _, p := range plan.Paused {
		if p.Task == id && p.Err != nil {
			return fmt.Sprintf("%s, retry in term %d: %v", p.Worker.Name, p.Until, p.Err)
		}
	}
	return ""
}
