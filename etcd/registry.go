package etcd

// The registry: which tasks there are, what is in them, and which workers are
// to end empty.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/f8949c05/orchestrator"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// MaxContent is how many bytes the content of a task may have: a mebibyte.
const MaxContent = 1 << 20

// Settings says how a task is to run. The zero value is one instance, handed
// over as the orchestrator does by default.
type Settings struct {
	Instances int // 0 means 1; what is read is at least 1
	Handoff   orchestrator.Handoff
}

// Item is a task of the registry.
type Item struct {
	Name     string // 1 to 1024 bytes, any
	Content  []byte // 0 to MaxContent bytes, any
	Settings Settings
	// Revision is that of the last change of the content. Those who write leave
	// it 0.
	Revision int64
}

// Registry holds the tasks. Each is a key under registry/ with the content as
// it was given, and, where its settings are not the default, a key under tasks/.
// All of it survives a restart of whoever uses it and of etcd.
//
// A write whose context ends, or whose connection breaks, may have been done or
// not, as with every database.
//
// A Registry may be used from many goroutines at once.
type Registry struct {
	settings
	client *clientv3.Client
	first  contact
}

// NewRegistry returns the registry under the prefix. It does not talk to etcd
// yet: the first call of a method does, and may fail with [ErrUnreachable] or
// [ErrForeignPrefix].
func NewRegistry(c *clientv3.Client, opts ...Option) (*Registry, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, fmt.Errorf("new registry: %w", err)
	}
	return &Registry{settings: s, client: c}, nil
}

// Create adds a task, and returns it with its revision. [ErrExists] where there
// is one of this name, which stays as it is; [ErrTooLarge].
func (r *Registry) Create(ctx context.Context, item Item) (Item, error) {
	ops, err := r.puts(item)
	if err != nil {
		return Item{}, fmt.Errorf("create task %q: %w", item.Name, err)
	}
	resp, err := r.commit(ctx, []clientv3.Cmp{absent(r.layout.Registry(item.Name))}, ops)
	if err != nil {
		return Item{}, fmt.Errorf("create task %q: %w", item.Name, err)
	}
	if !resp.Succeeded {
		return Item{}, fmt.Errorf("%w: %q", ErrExists, item.Name)
	}
	item.Settings, item.Revision = item.Settings.whole(), resp.Header.Revision
	return item, nil
}

// Put sets a task's content and settings, whether there is one of this name or
// not, and reports whether there was none. [ErrTooLarge].
func (r *Registry) Put(ctx context.Context, item Item) (stored Item, created bool, err error) {
	ops, err := r.puts(item)
	if err != nil {
		return Item{}, false, fmt.Errorf("put task %q: %w", item.Name, err)
	}
	// The read comes first, so it sees what was there. A comparison with the same
	// writes in both branches would send the content twice.
	before := clientv3.OpGet(r.layout.Registry(item.Name), clientv3.WithKeysOnly())
	resp, err := r.commit(ctx, nil, append([]clientv3.Op{before}, ops...))
	if err != nil {
		return Item{}, false, fmt.Errorf("put task %q: %w", item.Name, err)
	}
	item.Settings, item.Revision = item.Settings.whole(), resp.Header.Revision
	return item, len(found(resp.Responses[0])) == 0, nil
}

// Configure sets a task's settings and leaves its content alone. [ErrNotFound].
func (r *Registry) Configure(ctx context.Context, name string, s Settings) error {
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

// Delete removes a task. [ErrNotFound].
func (r *Registry) Delete(ctx context.Context, name string) error {
	if err := checkName("task", name); err != nil {
		return err
	}
	key := r.layout.Registry(name)
	resp, err := r.commit(ctx, []clientv3.Cmp{present(key)},
		[]clientv3.Op{clientv3.OpDelete(key), clientv3.OpDelete(r.layout.Tasks(name))})
	if err != nil {
		return fmt.Errorf("delete task %q: %w", name, err)
	}
	if !resp.Succeeded {
		return fmt.Errorf("%w: %q", ErrNotFound, name)
	}
	return nil
}

// Get returns a task. [ErrNotFound].
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
	item := Item{Name: name, Content: contents[0].Value, Settings: Settings{}.whole(), Revision: contents[0].ModRevision}
	if len(settings) > 0 {
		item.Settings = r.readSettings(name, settings[0].Value)
	}
	return item, nil
}

// MaxList is the most that one call of List returns.
const MaxList = 1000

// List returns up to limit tasks, those after the name given, in the order of
// their keys, which is always the same; from the first with an empty name.
// Fewer than limit are the last ones. All of one call are as of one moment. limit
// is from 1 to MaxList; mind that each may have a mebibyte.
func (r *Registry) List(ctx context.Context, after string, limit int) ([]Item, error) {
	if limit < 1 || limit > MaxList {
		return nil, fmt.Errorf("list tasks: %w: limit %d: must be from 1 to %d", orchestrator.ErrInvalid, limit, MaxList)
	}
	from := r.layout.RegistryPrefix()
	if after != "" {
		from = r.layout.Registry(after) + "\x00"
	}
	if err := r.first.enter(ctx, &r.settings, r.client); err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	var items []Item
	var rev int64 // of the first page; 0: now
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
			// What is no name was put there by somebody else.
			if _, _, name, ok := r.layout.Parse(string(kv.Key)); ok {
				index[name] = len(items)
				items = append(items, Item{Name: name, Content: kv.Value, Settings: Settings{}.whole(), Revision: kv.ModRevision})
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
				items[i].Settings = r.readSettings(name, kv.Value)
			}
		}
	}
	return items, nil
}

// puts are the operations that store an item.
func (r *Registry) puts(item Item) ([]clientv3.Op, error) {
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
	return []clientv3.Op{clientv3.OpPut(r.layout.Registry(item.Name), string(item.Content)), settings}, nil
}

func (r *Registry) putSettings(name string, s Settings) (clientv3.Op, error) {
	if err := s.check(); err != nil {
		return clientv3.Op{}, err
	}
	if s.isDefault() {
		return clientv3.OpDelete(r.layout.Tasks(name)), nil
	}
	value, err := json.Marshal(s)
	if err != nil {
		return clientv3.Op{}, err
	}
	return clientv3.OpPut(r.layout.Tasks(name), string(value)), nil
}

// readSettings returns the settings in a value, and the default where somebody
// has written something else there.
func (r *Registry) readSettings(name string, value []byte) Settings {
	var s Settings
	if err := json.Unmarshal(value, &s); err != nil {
		r.logger.Warn("settings that cannot be read count as the default", "task", name, "err", err)
		return Settings{}.whole()
	}
	return s
}

// commit makes a transaction on a prefix that is ours. Where it has ceased to be,
// which is so where etcd has become another one, it makes it so again.
func (r *Registry) commit(ctx context.Context, ifs []clientv3.Cmp, then []clientv3.Op) (*clientv3.TxnResponse, error) {
	for {
		if err := r.first.enter(ctx, &r.settings, r.client); err != nil {
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
			r.first.made.Store(false)
			continue
		}
		inner := (*clientv3.TxnResponse)(resp.Responses[0].GetResponseTxn())
		inner.Header = resp.Header
		return inner, nil
	}
}

// whole returns the settings as they are read.
func (s Settings) whole() Settings {
	s.Instances = max(s.Instances, 1)
	return s
}

func (s Settings) isDefault() bool {
	return s.Instances <= 1 && s.Handoff == orchestrator.HandoffDefault
}

func (s Settings) check() error {
	if s.Instances < 0 || s.Instances > math.MaxInt32 {
		return fmt.Errorf("%w: Instances is %d: must be from 0 to %d", orchestrator.ErrInvalid, s.Instances, math.MaxInt32)
	}
	if s.Handoff > orchestrator.StartThenStop {
		return fmt.Errorf("%w: Handoff is %d", orchestrator.ErrInvalid, s.Handoff)
	}
	return nil
}

func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

func present(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), ">", 0)
}

func found(r *etcdserverpb.ResponseOp) []*mvccpb.KeyValue { return r.GetResponseRange().GetKvs() }
