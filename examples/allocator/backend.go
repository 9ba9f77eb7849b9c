package main

// The API's interfaces, implemented with etcd.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/examples/allocator/api"
)

// tasks implements api.Tasks with the registry.
type tasks struct{ *etcd.Registry }

func (t tasks) Create(ctx context.Context, item api.Item) (api.Item, error) {
	stored, err := t.Registry.Create(ctx, etcd.Item{
		Name: item.ID, Content: item.Content, Settings: withRules(orchestrator.TaskSettings{Instances: item.Instances}, item.Rules),
	})
	return shown(stored), known(err)
}

// Put retries until ctx ends if another write comes between its read and its write.
// It keeps the settings that the API does not expose.
func (t tasks) Put(ctx context.Context, id string, c api.Change) (api.Item, bool, error) {
	for {
		before, err := t.meeting(ctx, id, c.If)
		missing := errors.Is(err, etcd.ErrNotFound)
		if err != nil && (!missing || c.Content == nil) {
			return api.Item{}, false, known(err)
		}
		after := before
		if c.Content != nil {
			after.Content = c.Content
		}
		if c.Instances != 0 {
			after.Settings.Instances = c.Instances
		}
		if c.Rules != nil {
			rules := rulesOf(after.Settings)
			c.Rules(&rules)
			after.Settings = withRules(after.Settings, rules)
		}
		stored, err := t.CompareAndSwap(ctx, before, after)
		if !errors.Is(err, etcd.ErrChanged) {
			return shown(stored), missing, known(err)
		}
	}
}

func (t tasks) Delete(ctx context.Context, id string, c api.Condition) error {
	if c == nil {
		return known(t.Registry.Delete(ctx, id))
	}
	for {
		before, err := t.meeting(ctx, id, c)
		if err == nil {
			err = t.CompareAndDelete(ctx, before)
		}
		if !errors.Is(err, etcd.ErrChanged) {
			return known(err)
		}
	}
}

// meeting returns the current task, or only its name and ErrNotFound if it does not
// exist. It returns api.ErrChanged if the task does not meet the condition.
func (t tasks) meeting(ctx context.Context, id string, c api.Condition) (etcd.Item, error) {
	item, err := t.Registry.Get(ctx, id)
	if err != nil && !errors.Is(err, etcd.ErrNotFound) {
		return etcd.Item{}, err
	}
	if !c.Holds(version(item)) {
		return etcd.Item{}, api.ErrChanged
	}
	item.Name = id
	return item, err
}

func (t tasks) Get(ctx context.Context, id string) (api.Item, error) {
	item, err := t.Registry.Get(ctx, id)
	return shown(item), known(err)
}

func (t tasks) List(ctx context.Context, after string, limit int) ([]api.Item, error) {
	found, err := t.Registry.List(ctx, after, limit)
	items := make([]api.Item, len(found))
	for i, item := range found {
		items[i] = shown(item)
	}
	return items, err
}

func shown(item etcd.Item) api.Item {
	return api.Item{
		ID: item.Name, Content: item.Content, Instances: cmp.Or(item.Settings.Instances, 1), Rules: rulesOf(item.Settings),
		Version: version(item),
	}
}

// rulesOf returns the rules among settings, and withRules returns settings with others.
func rulesOf(s orchestrator.TaskSettings) api.Rules {
	return api.Rules{Requires: s.Requires, MaxPerZone: s.MaxPerZone, Weight: s.Weight}
}

func withRules(s orchestrator.TaskSettings, r api.Rules) orchestrator.TaskSettings {
	s.Requires, s.MaxPerZone, s.Weight = r.Requires, r.MaxPerZone, r.Weight
	return s
}

// version returns a string that differs between any two states of a task. A settings
// revision of 0 means the default settings, so equal strings mean equal states.
func version(item etcd.Item) string {
	if item.Revision == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%d", item.Revision, item.SettingsRevision)
}

// known translates an error to the API's, if there is one.
func known(err error) error {
	switch {
	case errors.Is(err, etcd.ErrNotFound), errors.Is(err, orchestrator.ErrInvalid): // no task has an invalid name
		return api.ErrNotFound
	case errors.Is(err, etcd.ErrExists):
		return api.ErrExists
	case errors.Is(err, etcd.ErrTooLarge):
		return fmt.Errorf("%w: %w", api.ErrTooLarge, err)
	default:
		return err
	}
}

// cluster implements api.Cluster.
type cluster struct{ *node }

func (c cluster) Owners(id string) []string {
	var names []string
	for _, o := range c.owners.Of(id) {
		names = append(names, o.Worker)
	}
	return names
}

func (c cluster) Workers(ctx context.Context) ([]api.Worker, error) {
	members, err := c.membership.List(ctx)
	if err != nil {
		return nil, err
	}
	has := map[string][]string{}
	for task, owners := range c.owners.All() {
		for _, o := range owners {
			has[o.Worker] = append(has[o.Worker], task)
		}
	}
	workers := make([]api.Worker, len(members))
	for i, m := range members {
		workers[i] = api.Worker{Name: m.Name, State: "ready", Tasks: has[m.Name]}
		slices.Sort(workers[i].Tasks)
		if m.Draining {
			workers[i].State = "draining"
		}
	}
	return workers, nil
}

func (c cluster) Leader(ctx context.Context) (string, uint64, error) {
	leader, err := c.election.Leader(ctx)
	if errors.Is(err, etcd.ErrNoLeader) {
		return "", 0, nil
	}
	return leader.Name, leader.Epoch, err
}
