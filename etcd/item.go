package etcd

// Tasks and settings as values. This file makes no calls to etcd.

import (
	"bytes"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
)

// Item is a task of the registry.
type Item struct {
	Name    string // 1 to 1024 arbitrary bytes
	Content []byte // 0 to MaxContent arbitrary bytes
	// Settings has Instances of at least 1, or -1, when it is read.
	Settings orchestrator.TaskSettings
	// Revision is the revision of the content's last change; 0 if the task does not
	// exist. Create and Put ignore it.
	Revision int64
	// SettingsRevision is the revision of the settings' last change; 0 if they are
	// the default, which is not stored. Create and Put ignore it.
	SettingsRevision int64
}

// sameContent reports whether old exists and has the item's content.
func (i Item) sameContent(old Item) bool {
	return old.Revision != 0 && bytes.Equal(i.Content, old.Content)
}

// sameSettings reports whether old exists and has the item's settings.
func (i Item) sameSettings(old Item) bool {
	return old.Revision != 0 && i.Settings.Equal(old.Settings)
}

// storedOver returns the item as it can be read after a transaction at the revision
// has replaced old by it.
func (i Item) storedOver(old Item, revision int64) Item {
	i.Settings = i.Settings.Normalized()
	if !i.sameContent(old) {
		i.Revision = revision
	} else {
		i.Revision = old.Revision
	}
	switch {
	case i.sameSettings(old):
		i.SettingsRevision = old.SettingsRevision
	case isDefault(i.Settings):
		i.SettingsRevision = 0
	default:
		i.SettingsRevision = revision
	}
	return i
}

// isDefault reports whether the settings are the default, which is not stored.
func isDefault(s orchestrator.TaskSettings) bool {
	return s.Equal(orchestrator.TaskSettings{})
}

// ItemChange is a change of one task.
type ItemChange struct {
	Name string
	// Revision is the revision of the content's last change; 0 if the task was
	// deleted.
	Revision int64
	Settings orchestrator.TaskSettings
}

// registryCache holds the known tasks. A task exists if its content does; settings
// alone are ignored.
type registryCache struct {
	registry *Registry
	items    map[string]*ItemChange
	begun    bool
}

func newRegistryCache(r *Registry) *registryCache {
	return &registryCache{registry: r, items: make(map[string]*ItemChange)}
}

// apply applies changes of keys and returns the resulting changes of tasks.
func (c *registryCache) apply(changes []mirror.Change) []ItemChange {
	var order []string
	before := make(map[string]ItemChange)
	for _, ch := range changes {
		kind, _, name, _ := c.registry.layout.Parse(ch.Key)
		if kind != keys.Registry && kind != keys.Tasks {
			continue
		}
		item := c.items[name]
		if item == nil {
			item = &ItemChange{Name: name, Settings: orchestrator.TaskSettings{}.Normalized()}
			c.items[name] = item
		}
		if _, ok := before[name]; !ok {
			before[name] = *item
			order = append(order, name)
		}
		switch {
		case kind == keys.Registry && ch.New == nil:
			item.Revision = 0
		case kind == keys.Registry:
			item.Revision = ch.New.Mod
		case ch.New == nil:
			item.Settings = orchestrator.TaskSettings{}.Normalized()
		default:
			item.Settings = c.registry.readSettings(name, ch.New.Value)
		}
	}
	var items []ItemChange
	for _, name := range order {
		item, was := *c.items[name], before[name]
		if item.Revision == 0 && isDefault(item.Settings) {
			delete(c.items, name)
		}
		switch {
		case item.Revision == 0 && was.Revision == 0: // settings without a task
		case item.Revision == 0:
			items = append(items, ItemChange{Name: name})
		case item.Revision != was.Revision || !item.Settings.Equal(was.Settings):
			items = append(items, item)
		}
	}
	return items
}

// tell passes changes on to o. The first call passes all tasks on together, because
// o stops every task that it does not know.
func (c *registryCache) tell(o Tasks, changes []mirror.Change) error {
	items := c.apply(changes)
	if !c.begun {
		c.begun = true
		tasks := make([]orchestrator.Task[string], 0, len(items))
		for _, item := range items {
			tasks = append(tasks, orchestrator.NewTask(item.Name, item.Settings))
		}
		return o.UpdateTasks(tasks)
	}
	for _, item := range items {
		if item.Revision == 0 {
			o.RemoveTask(item.Name)
			continue
		}
		if err := o.AddTask(item.Name, orchestrator.WithTaskSettings(item.Settings)); err != nil {
			return err
		}
	}
	return nil
}
