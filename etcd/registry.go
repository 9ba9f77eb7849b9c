package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
)

// MaxContent is the maximum size of a task's content in bytes: one mebibyte.
const MaxContent = 1 << 20

// Registry stores the tasks. Each task is a key under registry/ with its content,
// unchanged. If its settings are not the default, there is also a key under tasks/.
// Both survive restarts of etcd and its clients.
//
// As with every database, a write whose context ends or whose connection breaks may
// or may not have been applied.
//
// While etcd is away, a call waits until its context ends, except the first one. Give
// the context a deadline.
//
// A Registry may be used from many goroutines at the same time.
type Registry struct{ preflight }

// NewRegistry returns the registry under the prefix. It does not contact etcd; the
// first call of a method does, and may fail with [ErrUnreachable] or
// [ErrForeignPrefix].
func NewRegistry(c *clientv3.Client, opts ...Option) (*Registry, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, fmt.Errorf("new registry: %w", err)
	}
	return &Registry{preflight{settings: s, client: c}}, nil
}

// Create adds a task and returns it with its revisions. It returns [ErrExists], and
// changes nothing, if there is a task of this name, or [ErrTooLarge].
func (r *Registry) Create(ctx context.Context, item Item) (Item, error) {
	stored, err := r.CompareAndSwap(ctx, Item{Name: item.Name}, item)
	if errors.Is(err, ErrChanged) {
		return Item{}, fmt.Errorf("%w: %q", ErrExists, item.Name)
	}
	return stored, err
}

// Put sets the content and settings of a task, or adds the task. created reports
// whether it was added. Put returns [ErrTooLarge] if the content is too large. It
// overwrites any change since the last read; use [Registry.CompareAndSwap] to detect
// one.
func (r *Registry) Put(ctx context.Context, item Item) (stored Item, created bool, err error) {
	ops, err := r.puts(Item{}, item)
	if err != nil {
		return Item{}, false, fmt.Errorf("put task %q: %w", item.Name, err)
	}
	// The read comes first in the transaction, so it sees the state before the
	// writes. A comparison with the writes in both branches would send the content
	// twice.
	before := clientv3.OpGet(r.layout.Registry(item.Name), clientv3.WithKeysOnly())
	resp, err := r.commit(ctx, nil, append([]clientv3.Op{before}, ops...))
	if err != nil {
		return Item{}, false, fmt.Errorf("put task %q: %w", item.Name, err)
	}
	return item.storedOver(Item{}, resp.Header.Revision), len(found(resp.Responses[0])) == 0, nil
}

// CompareAndSwap replaces old, a task as last read or written, by item of the same
// name. It returns item with its revisions. An old without a Revision stands for a
// task that does not exist.
//
// It writes only the difference. If the content is the same, Revision stays, and the
// workers that run the task are not notified.
//
// It returns [ErrChanged], and writes nothing, if the content or settings have been
// written since, or if the task was added or deleted. It returns [ErrTooLarge] if
// the content is too large.
func (r *Registry) CompareAndSwap(ctx context.Context, old, item Item) (Item, error) {
	if old.Name != item.Name {
		return Item{}, fmt.Errorf("store task %q: %w: cannot replace task %q", item.Name, orchestrator.ErrInvalid, old.Name)
	}
	ops, err := r.puts(old, item)
	if err != nil {
		return Item{}, fmt.Errorf("store task %q: %w", item.Name, err)
	}
	resp, err := r.commit(ctx, r.unchanged(old), ops)
	if err != nil {
		return Item{}, fmt.Errorf("store task %q: %w", item.Name, err)
	}
	if !resp.Succeeded {
		return Item{}, fmt.Errorf("%w: %q", ErrChanged, item.Name)
	}
	return item.storedOver(old, resp.Header.Revision), nil
}

// CompareAndDelete deletes old, a task as last read or written. It returns
// [ErrChanged], and deletes nothing, if the content or settings have been written
// since, or if the task was deleted.
func (r *Registry) CompareAndDelete(ctx context.Context, old Item) error {
	if err := checkName("task", old.Name); err != nil {
		return err
	}
	resp, err := r.commit(ctx, r.unchanged(old), r.deletes(old.Name))
	if err != nil {
		return fmt.Errorf("delete task %q: %w", old.Name, err)
	}
	if !resp.Succeeded {
		return fmt.Errorf("%w: %q", ErrChanged, old.Name)
	}
	return nil
}

// Configure sets the settings of a task and keeps its content. It returns
// [ErrNotFound] if there is no such task.
func (r *Registry) Configure(ctx context.Context, name string, s orchestrator.TaskSettings) error {
	if err := checkName("task", name); err != nil {
		return err
	}
	op, err := r.putSettings(name, s)
	if err != nil {
		return fmt.Errorf("configure task %q: %w", name, err)
	}
	resp, err := r.commit(ctx, []clientv3.Cmp{present(r.layout.Registry(name))}, []clientv3.Op{op})
	if err != nil {
		return fmt.Errorf("configure task %q: %w", name, err)
	}
	if !resp.Succeeded {
		return fmt.Errorf("%w: %q", ErrNotFound, name)
	}
	return nil
}

// Delete deletes a task. It returns [ErrNotFound] if there is no such task.
func (r *Registry) Delete(ctx context.Context, name string) error {
	if err := checkName("task", name); err != nil {
		return err
	}
	resp, err := r.commit(ctx, []clientv3.Cmp{present(r.layout.Registry(name))}, r.deletes(name))
	if err != nil {
		return fmt.Errorf("delete task %q: %w", name, err)
	}
	if !resp.Succeeded {
		return fmt.Errorf("%w: %q", ErrNotFound, name)
	}
	return nil
}

// Get returns a task. It returns [ErrNotFound] if there is no such task.
func (r *Registry) Get(ctx context.Context, name string) (Item, error) {
	if err := checkName("task", name); err != nil {
		return Item{}, err
	}
	resp, err := r.commit(ctx, nil,
		[]clientv3.Op{clientv3.OpGet(r.layout.Registry(name)), clientv3.OpGet(r.layout.Tasks(name))})
	if err != nil {
		return Item{}, fmt.Errorf("get task %q: %w", name, err)
	}
	contents, settings := found(resp.Responses[0]), found(resp.Responses[1])
	if len(contents) == 0 {
		return Item{}, fmt.Errorf("%w: %q", ErrNotFound, name)
	}
	item := Item{Name: name, Content: contents[0].Value, Settings: orchestrator.TaskSettings{}.Normalized(), Revision: contents[0].ModRevision}
	if len(settings) > 0 {
		item.Settings, item.SettingsRevision = r.readSettings(name, settings[0].Value), settings[0].ModRevision
	}
	return item, nil
}

// MaxList is the maximum limit of List.
const MaxList = 1000

// List returns up to limit tasks after the given name, or from the first if it is
// empty. They are in the order of their keys, which never changes. Fewer than limit
// tasks means that there are no more. All tasks of one call are as of one revision.
// limit must be from 1 to MaxList; each task may have a mebibyte of content.
func (r *Registry) List(ctx context.Context, after string, limit int) ([]Item, error) {
	if limit < 1 || limit > MaxList {
		return nil, fmt.Errorf("list tasks: %w: limit %d: must be from 1 to %d", orchestrator.ErrInvalid, limit, MaxList)
	}
	from := r.layout.RegistryPrefix()
	if after != "" {
		from = r.layout.Registry(after) + "\x00"
	}
	if err := r.enter(ctx); err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	var items []Item
	var rev int64 // of the first page; 0: not read yet
	index := make(map[string]int)
	for more := true; more && len(items) < limit; {
		page, err := r.client.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(r.layout.RegistryPrefix())),
			clientv3.WithLimit(int64(limit-len(items))), clientv3.WithRev(rev))
		if err != nil {
			return nil, fmt.Errorf("list tasks: %w", err)
		}
		if rev == 0 {
			rev = page.Header.Revision
		}
		more = page.More
		for _, kv := range page.Kvs {
			from = string(kv.Key) + "\x00"
			// Skip keys that are not valid names; another program has put them
			// there.
			if _, _, name, ok := r.layout.Parse(string(kv.Key)); ok {
				index[name] = len(items)
				items = append(items, Item{Name: name, Content: kv.Value, Settings: orchestrator.TaskSettings{}.Normalized(), Revision: kv.ModRevision})
			}
		}
	}
	if len(items) == 0 {
		return nil, nil
	}
	configured, err := r.client.Get(ctx, r.layout.Tasks(items[0].Name),
		clientv3.WithRange(r.layout.Tasks(items[len(items)-1].Name)+"\x00"), clientv3.WithRev(rev))
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	for _, kv := range configured.Kvs {
		if _, _, name, ok := r.layout.Parse(string(kv.Key)); ok {
			if i, ok := index[name]; ok {
				items[i].Settings, items[i].SettingsRevision = r.readSettings(name, kv.Value), kv.ModRevision
			}
		}
	}
	return items, nil
}

// Drain drains the worker of that name: its tasks move away and it gets no others,
// until Undrain. A drain outlives changes of the leader and of the membership. The
// worker need not be a member.
func (r *Registry) Drain(ctx context.Context, worker string) error {
	if err := checkName("worker", worker); err != nil {
		return err
	}
	if _, err := r.commit(ctx, nil, []clientv3.Op{clientv3.OpPut(r.layout.Drain(worker), "draining")}); err != nil {
		return fmt.Errorf("drain %s: %w", worker, err)
	}
	return nil
}

// Undrain ends a drain. A worker that is not drained is not an error.
func (r *Registry) Undrain(ctx context.Context, worker string) error {
	if err := checkName("worker", worker); err != nil {
		return err
	}
	if _, err := r.commit(ctx, nil, []clientv3.Op{clientv3.OpDelete(r.layout.Drain(worker))}); err != nil {
		return fmt.Errorf("undrain %s: %w", worker, err)
	}
	return nil
}

// Draining returns the names of the workers that were drained with Drain, in the
// order of their keys.
func (r *Registry) Draining(ctx context.Context) ([]string, error) {
	resp, err := r.commit(ctx, nil,
		[]clientv3.Op{clientv3.OpGet(r.layout.DrainsPrefix(), clientv3.WithPrefix(), clientv3.WithKeysOnly())})
	if err != nil {
		return nil, fmt.Errorf("list drains: %w", err)
	}
	var names []string
	for _, kv := range found(resp.Responses[0]) {
		if _, worker, _, ok := r.layout.Parse(string(kv.Key)); ok {
			names = append(names, worker)
		}
	}
	return names, nil
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
	if err := r.await(ctx); err != nil {
		return fmt.Errorf("watch registry: %w", err)
	}
	cache := newRegistryCache(r)
	return r.mirror().RunAcrossClusters(ctx, func(_ mirror.At, changes []mirror.Change) {
		if items := cache.apply(changes); len(items) > 0 || !cache.begun {
			cache.begun = true
			f(items)
		}
	})
}

// Tasks is the part of an orchestrator that receives the tasks.
type Tasks interface {
	UpdateTasks(tasks []orchestrator.Task[string]) error
	AddTask(name string, opts ...orchestrator.TaskOption) error
	RemoveTask(name string)
}

var _ Tasks = (*orchestrator.Orchestrator[WorkerID, string])(nil)

// Feed reports all tasks to o, and then every change for as long as the leadership
// lasts. When Feed returns, o knows everything that was written before the leader
// was elected, and may run its first term. Feed fails if ctx or the leadership ends
// first. Call it in the load function of [LeadWith].
func (r *Registry) Feed(ctx context.Context, l *Leadership, o Tasks) error {
	cache := newRegistryCache(r)
	return l.feed(ctx, "tasks", r.prefix, r.mirror(), func(changes []mirror.Change) error { return cache.tell(o, changes) })
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

// puts returns the operations that replace old by item.
func (r *Registry) puts(old, item Item) ([]clientv3.Op, error) {
	if err := checkName("task", item.Name); err != nil {
		return nil, err
	}
	if len(item.Content) > MaxContent {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(item.Content), MaxContent)
	}
	settings, err := r.putSettings(item.Name, item.Settings)
	if err != nil {
		return nil, err
	}
	var ops []clientv3.Op
	if !item.sameContent(old) {
		ops = append(ops, clientv3.OpPut(r.layout.Registry(item.Name), string(item.Content)))
	}
	if !item.sameSettings(old) {
		ops = append(ops, settings)
	}
	return ops, nil
}

func (r *Registry) deletes(name string) []clientv3.Op {
	return []clientv3.Op{clientv3.OpDelete(r.layout.Registry(name)), clientv3.OpDelete(r.layout.Tasks(name))}
}

// unchanged returns comparisons that hold while a task is as it was read. A missing
// key has the revision 0. Settings without a task are ignored.
func (r *Registry) unchanged(old Item) []clientv3.Cmp {
	key := r.layout.Registry(old.Name)
	if old.Revision == 0 {
		return []clientv3.Cmp{absent(key)}
	}
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(key), "=", old.Revision),
		clientv3.Compare(clientv3.ModRevision(r.layout.Tasks(old.Name)), "=", old.SettingsRevision),
	}
}

func (r *Registry) putSettings(name string, s orchestrator.TaskSettings) (clientv3.Op, error) {
	if err := s.Check(); err != nil {
		return clientv3.Op{}, err
	}
	if isDefault(s) {
		return clientv3.OpDelete(r.layout.Tasks(name)), nil
	}
	value, err := json.Marshal(s)
	if err != nil {
		return clientv3.Op{}, err
	}
	return clientv3.OpPut(r.layout.Tasks(name), string(value)), nil
}

// readSettings returns the settings in a value, or the default if the value cannot
// be read.
func (r *Registry) readSettings(name string, value []byte) orchestrator.TaskSettings {
	var s orchestrator.TaskSettings
	if err := json.Unmarshal(value, &s); err != nil {
		r.logger.Warn("settings unreadable, using the default", "task", name, "err", err)
		return orchestrator.TaskSettings{}.Normalized()
	}
	return s
}

// commit makes a transaction under a prefix that is marked as ours. If etcd was
// replaced by another one, commit marks the prefix again.
func (r *Registry) commit(ctx context.Context, ifs []clientv3.Cmp, then []clientv3.Op) (*clientv3.TxnResponse, error) {
	for {
		if err := r.enter(ctx); err != nil {
			return nil, err
		}
		resp, err := r.client.Txn(ctx).
			If(present(r.layout.Format())).
			Then(clientv3.OpTxn(ifs, then, nil)).
			Commit()
		switch {
		case errors.Is(err, rpctypes.ErrRequestTooLarge):
			return nil, fmt.Errorf("%w: %w", ErrTooLarge, err)
		case err != nil:
			return nil, err
		case !resp.Succeeded:
			r.passed.Store(false)
			continue
		}
		inner := (*clientv3.TxnResponse)(resp.Responses[0].GetResponseTxn())
		inner.Header = resp.Header
		return inner, nil
	}
}
