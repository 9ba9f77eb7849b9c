package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/ascii"
	"github.com/f8949c05/orchestrator/replica"
)

var (
	// ErrChanged reports that a task has changed since it was read, or that it exists and should not,
	// or the other way round.
	ErrChanged = errors.New("the task has changed")
	// ErrNotFound reports that there is no such task.
	ErrNotFound = errors.New("there is no such task")
)

// MaxContent is the size of the content of a task. With name and settings it is below 1.5 MiB, which is
// what etcd takes by default.
const MaxContent = 1 << 20

// Item is a task of a Registry.
type Item struct {
	// Task has the name and the settings. Generation is ignored. The Registry sets Input by a hash of the
	// content, so that a running task is told when its content has changed, and only then; see
	// worker.Updated. To change a task, read it and write it with the Input that was read: a content
	// that comes back has another Input then. Leave it 0 otherwise.
	replica.Task
	// Content is any bytes, at most MaxContent. The Registry keeps them for the task.
	Content []byte
	// Revision is the one that wrote the task, as it was read; 0: it does not exist.
	Revision int64
}

// Registry keeps the tasks of a service in etcd, with their settings and with content: what a user
// writes, a leader reads as a [replica.Source], and a task reads when it starts. It may share the
// prefix of a [Table]. Its methods may be called from any number of goroutines.
//
//	registry := etcd.NewRegistry(client, "/pollers/")
//	err := replica.Run(ctx, etcd.New(client, "/pollers/"), registry.Watch, poll)
//
// A task can take new content while it runs:
//
//	func poll(ctx context.Context, name string) error {
//		updated := worker.Updated(ctx)
//		for {
//			task, err := registry.Get(ctx, name)
//			if err != nil {
//				return err
//			}
//			… // begin to work as task.Content says
//			select {
//			case <-updated:
//			case <-ctx.Done():
//				return nil
//			}
//		}
//	}
//
// For each task there are two keys. etcdctl get --prefix /pollers/registry/ prints the tasks with
// their settings, and etcdctl get /pollers/content/acme the content of one, as it was given:
//
//	/pollers/registry/acme   {"name":"acme","instances":2,"input":513606444142856}
//	/pollers/content/acme    interval: 10s
//
// A write whose context ends, or whose connection breaks, may have been written.
type Registry struct{ t *Table }

// The keys of a Registry.
const (
	registered = "registry/" // replica.Task
	contents   = "content/"
)

// NewRegistry returns the registry under a prefix; see [New].
func NewRegistry(client *clientv3.Client, prefix string) *Registry {
	return &Registry{New(client, prefix)}
}

// Put writes tasks, whether they exist or not. It writes many in one transaction, but not all of
// them: it returns how many of them, from the first one on, are certainly written. The error wraps
// replica.ErrInvalid if a task is out of range, and then nothing is written.
func (r *Registry) Put(ctx context.Context, items ...Item) (int, error) {
	return r.write(ctx, items, false)
}

// CompareAndPut is Put that writes a task only if its Revision is still that of the item: an update of
// what was read, or a creation if it is 0. The error wraps ErrChanged if one has changed. Then the
// transaction of that one is not written.
func (r *Registry) CompareAndPut(ctx context.Context, items ...Item) (int, error) {
	return r.write(ctx, items, true)
}

func (r *Registry) write(ctx context.Context, items []Item, compare bool) (int, error) {
	units := make([]registryUnit, len(items))
	for i, item := range items {
		settings := orchestrator.TaskSettings{
			Instances: item.Instances, Handoff: item.Handoff, Requires: item.Requires, MaxPerZone: item.MaxPerZone, Weight: item.Weight,
		}
		err := settings.Check()
		switch {
		case item.Name == "" || len(item.Name) > 1024:
			err = errors.New("a name has 1 to 1024 bytes")
		case len(item.Content) > MaxContent:
			err = fmt.Errorf("the content has %d bytes: at most %d", len(item.Content), MaxContent)
		}
		if err != nil {
			return 0, fmt.Errorf("put task %.100q: %w: %w", item.Name, replica.ErrInvalid, err)
		}
		item.Input, item.Generation = inputOf(item), 0
		text, err := json.Marshal(ascii.Map(item.Task, escape))
		if err != nil {
			return 0, fmt.Errorf("put task %.100q: %w", item.Name, err)
		}
		units[i] = registryUnit{name: item.Name, revision: item.Revision, size: len(text) + len(item.Content), ops: []clientv3.Op{
			clientv3.OpPut(r.key(registered, item.Name), string(text)), clientv3.OpPut(r.key(contents, item.Name), string(item.Content)),
		}}
	}
	return r.commit(ctx, "put", units, compare)
}

// inputOf returns the Input of an item that is written. Its lower 48 bits are a hash of the content. The
// others count the contents. Without them a content that comes back while no replica leads is no change
// for the next leader, though a task may have begun with the one between.
func inputOf(item Item) int64 {
	const bits = 48
	h := fnv.New64a()
	_, _ = h.Write(item.Content)
	hash, was := h.Sum64()%(1<<bits), uint64(item.Input) //nolint:gosec // any number
	if was%(1<<bits) == hash {
		return item.Input
	}
	return int64((was>>bits+1)<<bits | hash) //nolint:gosec // any number
}

// Delete deletes tasks, whether they exist or not, as Put writes them.
func (r *Registry) Delete(ctx context.Context, names ...string) (int, error) {
	return r.delete(ctx, false, items(names)...)
}

// CompareAndDelete deletes tasks as CompareAndPut writes them.
func (r *Registry) CompareAndDelete(ctx context.Context, items ...Item) (int, error) {
	return r.delete(ctx, true, items...)
}

func items(names []string) []Item {
	all := make([]Item, len(names))
	for i, name := range names {
		all[i].Name = name
	}
	return all
}

func (r *Registry) delete(ctx context.Context, compare bool, items ...Item) (int, error) {
	units := make([]registryUnit, len(items))
	for i, item := range items {
		units[i] = registryUnit{name: item.Name, revision: item.Revision, ops: []clientv3.Op{
			clientv3.OpDelete(r.key(registered, item.Name)), clientv3.OpDelete(r.key(contents, item.Name)),
		}}
	}
	return r.commit(ctx, "delete", units, compare)
}

// registryUnit is the part of a transaction that is for one task.
type registryUnit struct {
	name     string
	revision int64
	size     int
	ops      []clientv3.Op
}

// commit writes units in as few transactions as possible. A name that comes twice is in two.
func (r *Registry) commit(ctx context.Context, what string, units []registryUnit, compare bool) (n int, err error) {
	if r.t.err != nil {
		return 0, r.t.err
	}
	for n < len(units) {
		var cmps []clientv3.Cmp
		var ops, reads []clientv3.Op
		size, names := 0, make(map[string]bool)
		end := n
		for ; end < len(units); end++ {
			u := units[end]
			u.size += 4 * len(r.key(registered, u.name)) // two writes, a comparison and a read
			if len(ops) > 0 && (len(ops)+len(u.ops) > maxOps || size+u.size > maxBytes || names[u.name]) {
				break
			}
			ops, size, names[u.name] = append(ops, u.ops...), size+u.size, true
			reads = append(reads, clientv3.OpGet(r.key(registered, u.name), clientv3.WithKeysOnly()))
			if compare {
				cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(r.key(registered, u.name)), "=", u.revision))
			}
		}
		resp, err := r.t.client.Txn(ctx).If(cmps...).Then(ops...).Else(reads...).Commit()
		if err != nil {
			return n, fmt.Errorf("%s task %.100q: %w", what, units[n].name, r.t.explain(ctx, err))
		}
		for i := 0; !resp.Succeeded && i < end-n; i++ {
			if kvs := resp.Responses[i].GetResponseRange().Kvs; len(kvs) == 0 && units[n+i].revision != 0 || len(kvs) > 0 && kvs[0].ModRevision != units[n+i].revision {
				return n, fmt.Errorf("%s task %.100q: %w", what, units[n+i].name, ErrChanged)
			}
		}
		n = end
	}
	return n, nil
}

// Get returns a task with its content. If the registry does not have it, the error wraps ErrNotFound.
func (r *Registry) Get(ctx context.Context, name string) (Item, error) {
	if r.t.err != nil {
		return Item{}, r.t.err
	}
	resp, err := r.t.client.Txn(ctx).Then(clientv3.OpGet(r.key(registered, name)), clientv3.OpGet(r.key(contents, name))).Commit()
	if err != nil {
		return Item{}, fmt.Errorf("get task %.100q: %w", name, r.t.explain(ctx, err))
	}
	settings, content := resp.Responses[0].GetResponseRange().Kvs, resp.Responses[1].GetResponseRange().Kvs
	if len(settings) == 0 {
		return Item{}, fmt.Errorf("get task %.100q: %w", name, ErrNotFound)
	}
	item := Item{Task: r.task(settings[0]), Revision: settings[0].ModRevision}
	if len(content) > 0 {
		item.Content = content[0].Value
	}
	return item, nil
}

// List returns the tasks without their contents, at most limit of them, that come after the one with
// the given name; empty: from the first one on. They are in the order of their escaped names.
func (r *Registry) List(ctx context.Context, after string, limit int) ([]Item, error) {
	if r.t.err != nil {
		return nil, r.t.err
	}
	if limit < 1 {
		return nil, fmt.Errorf("list tasks: %w: the limit is %d, it must be at least 1", replica.ErrInvalid, limit)
	}
	from := r.key(registered, "")
	if after != "" {
		from = r.key(registered, after) + "\x00"
	}
	resp, err := r.t.client.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(r.key(registered, ""))), clientv3.WithLimit(int64(limit)))
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", r.t.explain(ctx, err))
	}
	all := make([]Item, len(resp.Kvs))
	for i, kv := range resp.Kvs {
		all[i] = Item{Task: r.task(kv), Revision: kv.ModRevision}
	}
	return all, nil
}

// Watch calls tell with all tasks, and again whenever some have changed, until ctx ends. It is a
// [replica.Source]. After a compaction, and if etcd was set up anew or restored, it reads everything
// anew. It returns the error of tell, or of etcd.
func (r *Registry) Watch(ctx context.Context, tell func([]replica.Task) error) error {
	for ctx.Err() == nil {
		err := r.watch(ctx, tell)
		if err != nil && !errors.Is(err, rpctypes.ErrCompacted) && !errors.Is(err, errAgain) && ctx.Err() == nil {
			return fmt.Errorf("watch tasks: %w", r.t.explain(ctx, err))
		}
	}
	return nil
}

// watch is Watch until everything must be read anew.
func (r *Registry) watch(ctx context.Context, tell func([]replica.Task) error) error {
	if r.t.err != nil {
		return r.t.err
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	resp, err := r.t.client.Get(ctx, r.key(registered, ""), clientv3.WithPrefix())
	if err != nil {
		return err
	}
	all := make(map[string]replica.Task, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		all[string(kv.Key)] = r.task(kv)
	}
	last := resp.Header
	changes := r.t.client.Watch(ctx, r.key(registered, ""), clientv3.WithPrefix(), clientv3.WithRev(last.Revision+1))
	for {
		if err := tell(slices.Collect(maps.Values(all))); err != nil {
			return err
		}
		var events []*clientv3.Event
		if events, last, err = r.next(ctx, changes, last); err != nil {
			return err
		}
		for _, e := range events {
			if all[string(e.Kv.Key)] = r.task(e.Kv); e.Type == mvccpb.DELETE {
				delete(all, string(e.Kv.Key))
			}
		}
	}
}

// quiet is how long a watch may be silent before etcd is asked for its revision.
const quiet = 5 * time.Second

// next returns the next events of a watch, all that have come, and the header of the last response. A
// watch that the client resumes on another etcd, or on one that was set back, misses changes, and at
// lower revisions it is silent. So next returns errAgain if etcd answers as another cluster, in another
// term, as after each start of all its members, or with a lower revision than before.
func (r *Registry) next(ctx context.Context, changes clientv3.WatchChan, last *etcdserverpb.ResponseHeader) (events []*clientv3.Event, header *etcdserverpb.ResponseHeader, err error) {
	for {
		select {
		case resp, open := <-changes:
			if !open {
				return nil, nil, errClosed
			}
			if err := resp.Err(); err != nil {
				return nil, nil, err
			}
			header, events = resp.Header, append(events, resp.Events...)
		case <-time.After(quiet):
			resp, err := r.t.client.Get(ctx, r.key(registered, ""))
			if err != nil {
				continue // the watch goes on, or says why it does not
			}
			header = resp.Header
		}
		if header.ClusterId != last.ClusterId || header.RaftTerm != last.RaftTerm || len(events) == 0 && header.Revision < last.Revision {
			return nil, nil, errAgain
		}
		if last = header; len(events) > 0 && len(changes) == 0 {
			return events, last, nil
		}
	}
}

func (r *Registry) key(kind, name string) string { return r.t.prefix + kind + escape(name) }

// task returns the task of a key. One that was changed by hand so that it cannot be read is a bad row of
// the Source: the task stays as it was.
func (r *Registry) task(kv *mvccpb.KeyValue) replica.Task {
	name := ascii.Unescape(strings.TrimPrefix(string(kv.Key), r.key(registered, "")))
	var task replica.Task
	if err := json.Unmarshal(kv.Value, &task); err != nil {
		task = replica.Task{Instances: -2}
	}
	task = ascii.Map(task, ascii.Unescape)
	task.Name = name
	return task
}
