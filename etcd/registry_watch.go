package etcd

// Following the registry: for whoever wants to know, and for a leader's
// orchestrator.

import (
	"context"
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ItemChange is what became of one task.
type ItemChange struct {
	Name string
	// Revision is that of the last change of the content; 0: there is no such
	// task any more.
	Revision int64
	Settings Settings
}

// Watch calls f with every task there is, and then with each that changes, in
// the order of the changes; several changes of one task may come as one. The
// first call comes even if there is none. f is called from one goroutine, and
// owns the slice. Contents are not handed out, because together they may be
// large: Get returns one.
//
// It returns ctx's cause, [ErrForeignPrefix], or what etcd has against the client's
// user at the first contact. It lives through everything else: where etcd was away,
// or is another cluster, f hears the difference.
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

// Tasks is what an orchestrator is told of the tasks, by its own methods.
type Tasks interface {
	UpdateTasks(tasks []orchestrator.Task[string]) error
	AddTask(name string, opts ...orchestrator.TaskOption) error
	RemoveTask(name string)
}

var _ Tasks = (*orchestrator.Orchestrator[Worker, string])(nil)

// Feed tells o of all tasks there are, and goes on to tell it of every change
// for as long as the leadership lasts. When it returns, o has been told of
// everything that was written before the leader was elected, and may run its
// first term. It fails where ctx or the leadership ends before.
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

// mirror copies registry/ and tasks/, between which there is nothing else, by
// one watch, so that a task never is without its settings.
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

// itemBook is what is known of the tasks. A task is there if its content is; a
// key of settings alone is none.
type itemBook struct {
	registry *Registry
	items    map[string]*ItemChange
	begun    bool
}

func newItemBook(r *Registry) *itemBook {
	return &itemBook{registry: r, items: make(map[string]*ItemChange)}
}

// apply takes changes of keys and returns what they mean for tasks.
func (b *itemBook) apply(changes []mirror.Change) []ItemChange {
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

// tell tells o what changes mean. The first are all that there is, which it has
// to hear at once: what it was not told of is unexpected.
func (b *itemBook) tell(o Tasks, changes []mirror.Change) error {
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
