package main

// The API's interfaces, implemented with the registry in etcd and the replica.

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/examples/allocator/api"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/etcd"
)

// tasks implements api.Tasks with the registry.
type tasks struct{ *etcd.Registry }

func (t tasks) Create(ctx context.Context, item api.Item) (api.Item, error) {
	created := etcd.Item{Task: replica.Task{Name: item.ID, Instances: item.Instances}, Content: item.Content}
	setRules(&created, item.Rules)
	_, err := t.CompareAndPut(ctx, created)
	if errors.Is(err, etcd.ErrChanged) {
		err = api.ErrExists
	}
	return shown(created), known(err)
}

// Put retries until ctx ends if another write comes between its read and its write.
// It keeps the settings that the API does not expose.
func (t tasks) Put(ctx context.Context, id string, c api.Change) (api.Item, bool, error) {
	for {
		item, err := t.find(ctx, id, c.If)
		missing := errors.Is(err, api.ErrNotFound)
		if err != nil && (!missing || c.Content == nil) {
			return api.Item{}, false, err
		}
		if item.Instances < -1 { // the settings were edited by hand, and cannot be read
			item.Task = replica.Task{}
		}
		item.Name = id
		if c.Content != nil {
			item.Content = c.Content
		}
		if c.Instances != 0 {
			item.Instances = c.Instances
		}
		if c.Rules != nil {
			rules := rulesOf(item)
			c.Rules(&rules)
			setRules(&item, rules)
		}
		if _, err = t.CompareAndPut(ctx, item); !errors.Is(err, etcd.ErrChanged) {
			return shown(item), missing, known(err)
		}
	}
}

func (t tasks) Delete(ctx context.Context, id string, c api.Condition) error {
	for {
		item, err := t.find(ctx, id, c)
		if err != nil {
			return err
		}
		if _, err = t.CompareAndDelete(ctx, item); !errors.Is(err, etcd.ErrChanged) {
			return known(err)
		}
	}
}

// find returns a task that meets a condition. The error is api.ErrChanged if it does not, and
// api.ErrNotFound if it does not exist.
func (t tasks) find(ctx context.Context, id string, c api.Condition) (etcd.Item, error) {
	item, err := t.Registry.Get(ctx, id)
	err = known(err)
	present := ""
	switch {
	case err == nil:
		present = version(item)
	case !errors.Is(err, api.ErrNotFound):
		return item, err
	}
	if !c.Holds(present) {
		return item, api.ErrChanged
	}
	return item, err
}

func (t tasks) Get(ctx context.Context, id string) (api.Item, error) {
	item, err := t.find(ctx, id, nil)
	return shown(item), err
}

func (t tasks) List(ctx context.Context, after string, limit int) ([]string, error) {
	items, err := t.Registry.List(ctx, after, limit)
	ids := make([]string, len(items))
	for i, item := range items {
		ids[i] = item.Name
	}
	return ids, err
}

func shown(item etcd.Item) api.Item {
	return api.Item{
		ID: item.Name, Content: item.Content, Instances: cmp.Or(item.Instances, 1), Rules: rulesOf(item), Version: version(item),
	}
}

// rulesOf returns the rules of a task, and setRules sets them.
func rulesOf(item etcd.Item) api.Rules {
	return api.Rules{Requires: item.Requires, MaxPerZone: item.MaxPerZone, Weight: item.Weight}
}

func setRules(item *etcd.Item, r api.Rules) {
	item.Requires, item.MaxPerZone, item.Weight = r.Requires, r.MaxPerZone, r.Weight
}

// version returns a hash of the content and the settings. Equal ones mean equal tasks.
func version(item etcd.Item) string {
	item.Name, item.Input = "", 0
	settings, _ := json.Marshal(item.Task) // it has only texts and numbers
	h := sha256.New()
	_, _ = h.Write(append(settings, '\n'))
	_, _ = h.Write(item.Content)
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}

// known translates an error to the API's, if there is one.
func known(err error) error {
	switch {
	case errors.Is(err, etcd.ErrNotFound):
		return api.ErrNotFound
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("%w: %w", api.ErrTooLarge, err)
	default:
		return err
	}
}

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
