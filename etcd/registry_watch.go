package etcd

import (
	"context"
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ItemChange is a change of one task.
type ItemChange struct {
	Name string
	// Revision is the revision of the content's last change; 0 if the task was
	// deleted.
	Revision int64
	Settings Settings
}

// Watch calls f with all tasks, then with each change in order. Several changes of
// one task may be reported as one. The first call comes even if there is no task. f
// is called from one goroutine, and owns the slice. Contents are not included,
// because together they may be large; Get returns them.
//
// Watch returns the cause of ctx, [ErrForeignPrefix], or an error of etcd at the
// first contact that rejects the client's user. It survives all other errors. After
// an outage, or if etcd was replaced, f receives the difference.
func (r *Registry) Watch(ctx context.Context, f func([]ItemChange)) error {
	if err := r.first.await(ctx, &r.settings, r.client); err != nil {
		return fmt.Errorf("watch registry: %w", err)
	}
	book := newItemBook(r)
	m := r.mirror()
	for {
		err := m.Run(ctx, func(_ mirror.At, changes []mirror.Change) {
			if items := book.apply(changes); len(items) > 0 || !book.begun {
				book.begun = true
				f(items)
			}
		})
		if !errors.Is(err, mirror.ErrCluster) {
			return err
		}
	}
}

// Tasks is the part of an orchestrator that receives the tasks.
type Tasks interface {
	UpdateTasks(tasks []orchestrator.Task[string]) error
	AddTask(name string, opts ...orchestrator.TaskOption) error
	RemoveTask(name string)
}

var _ Tasks = (*orchestrator.Orchestrator[Worker, string])(nil)

// Feed reports all tasks to o, and then every change for as long as the leadership
// lasts. When Feed returns, o knows everything that was written before the leader
// was elected, and may run its first term. Feed fails if ctx or the leadership ends
// first.
func (r *Registry) Feed(ctx context.Context, l *Leadership, o Tasks) error {
	if err := l.under(r.prefix); err != nil {
		return fmt.Errorf("feed tasks: %w", err)
	}
	book := newItemBook(r)
	m := r.mirror()
	l.Go(func(ctx context.Context) error {
		var failed error
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		err := m.Run(ctx, func(_ mirror.At, changes []mirror.Change) {
			if err := book.tell(o, changes); err != nil && failed == nil {
				failed = err
				cancel(err)
			}
		})
		if failed != nil {
			return fmt.Errorf("feed tasks: %w", failed)
		}
		return err
	})
	if err := m.Reached(ctx, int64(l.Epoch())); err != nil {
		return fmt.Errorf("load registry: %w", ended(err))
	}
	return nil
}

// mirror copies registry/ and tasks/, which are adjacent, by one watch, so that a
// task is never seen without its settings.
func (r *Registry) mirror() *mirror.Mirror {
	return mirror.New(r.client, mirror.Options{
		From: r.layout.RegistryPrefix(),
		End:  clientv3.GetPrefixRangeEnd(r.layout.TasksPrefix()),
		Keep: func(key string) bool {
			kind, _, _, _ := r.layout.Parse(key)
			return kind == keys.Tasks
		},
		Logger: r.logger,
	})
}

// registryCache holds the known tasks. A task exists if its content does; settings alone
// are ignored.
type registryCache struct {
	registry *Registry
	items    map[string]*ItemChange
	begun    bool
}

func newItemBook(r *Registry) *registryCache {
	return &registryCache{registry: r, items: make(map[string]*ItemChange)}
}

// apply applies changes of keys and returns the resulting changes of tasks.
func (b *registryCache) apply(changes []mirror.Change) []ItemChange {
	var order []string
	before := make(map[string]ItemChange)
	for _, ch := range changes {
		kind, _, name, _ := b.registry.layout.Parse(ch.Key)
		if kind != keys.Registry && kind != keys.Tasks {
			continue
		}
		item := b.items[name]
		if item == nil {
			item = &ItemChange{Name: name, Settings: Settings{}.whole()}
			b.items[name] = item
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
			item.Settings = Settings{}.whole()
		default:
			item.Settings = b.registry.readSettings(name, ch.New.Value)
		}
	}
	var items []ItemChange
	for _, name := range order {
		item, was := *b.items[name], before[name]
		if item.Revision == 0 && item.Settings.isDefault() {
			delete(b.items, name)
		}
		switch {
		case item.Revision == 0 && was.Revision == 0: // settings without a task
		case item.Revision == 0:
			items = append(items, ItemChange{Name: name})
		case item != was:
			items = append(items, item)
		}
	}
	return items
}

// tell passes changes on to o. The first call passes all tasks on together, because
// o stops every task that it does not know.
func (b *registryCache) tell(o Tasks, changes []mirror.Change) error {
	items := b.apply(changes)
	if !b.begun {
		b.begun = true
		tasks := make([]orchestrator.Task[string], 0, len(items))
		for _, item := range items {
			tasks = append(tasks, orchestrator.Task[string]{
				Name: item.Name, Instances: item.Settings.Instances, Handoff: item.Settings.Handoff,
			})
		}
		return o.UpdateTasks(tasks)
	}
	for _, item := range items {
		if item.Revision == 0 {
			o.RemoveTask(item.Name)
			continue
		}
		err := o.AddTask(item.Name,
			orchestrator.WithTaskInstances(item.Settings.Instances), orchestrator.WithHandoff(item.Settings.Handoff))
		if err != nil {
			return err
		}
	}
	return nil
}
