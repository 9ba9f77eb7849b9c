package etcd

// The registry: which tasks there are, what is in them, and which workers are
// to end empty.

import (
	"bytes"
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
	// Revision is that of the last change of the content; 0: there is no such
	// task. Create and Put ignore it.
	Revision int64
	// SettingsRevision is that of the last change of the settings; 0: they are
	// the default, and not stored. Create and Put ignore it.
	SettingsRevision int64
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

// Create adds a task, and returns it with its revisions. It returns [ErrExists]
// if there is one of this name, which stays as it is, or [ErrTooLarge].
func (r *Registry) Create(ctx context.Context, item Item) (Item, error) {
	stored, err := r.CompareAndSwap(ctx, Item{Name: item.Name}, item)
	if errors.Is(err, ErrChanged) {
		return Item{}, fmt.Errorf("%w: %q", ErrExists, item.Name)
	}
	return stored, err
}

// Put sets a task's content and settings, whether there is one of this name or
// not, and reports whether there was none. [ErrTooLarge]. A change that another
// process makes between a read and a Put is lost: use [Registry.CompareAndSwap]
// to keep part of what was read.
func (r *Registry) Put(ctx context.Context, item Item) (stored Item, created bool, err error) {
	ops, err := r.puts(Item{}, item)
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
	return item.storedOver(Item{}, resp.Header.Revision), len(found(resp.Responses[0])) == 0, nil
}

// CompareAndSwap replaces old, a task as it was read or written last, by item,
// which has the same name, and returns item with its revisions. An old without a
// Revision says that there is no such task.
//
// It writes only what differs: if the content is the same, Revision stays, and
// the workers that run the task are not told.
//
// It returns [ErrChanged], and writes nothing, if the task's content or settings
// have been written since, or the task was added or deleted; or [ErrTooLarge].
func (r *Registry) CompareAndSwap(ctx context.Context, old, item Item) (Item, error) {
	if old.Name != item.Name {
		return Item{}, fmt.Errorf("store task %q: %w: it cannot replace task %q", item.Name, orchestrator.ErrInvalid, old.Name)
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

// CompareAndDelete removes old, a task as it was read or written last. It returns
// [ErrChanged], and removes nothing, if the task's content or settings have been
// written since, or the task was deleted.
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
	resp, err := r.commit(ctx, []clientv3.Cmp{present(r.layout.Registry(name))}, r.deletes(name))
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
		item.Settings, item.SettingsRevision = r.readSettings(name, settings[0].Value), settings[0].ModRevision
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
				items[i].Settings, items[i].SettingsRevision = r.readSettings(name, kv.Value), kv.ModRevision
			}
		}
	}
	return items, nil
}

// puts returns the operations that store an item in place of old.
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

// unchanged returns the comparisons that hold while a task is as it was read. A
// key that is not there has the revision 0. Settings without a task do not count.
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

// sameContent reports whether old is a task that has the item's content.
func (i Item) sameContent(old Item) bool {
	return old.Revision != 0 && bytes.Equal(i.Content, old.Content)
}

// sameSettings reports whether old is a task that has the item's settings.
func (i Item) sameSettings(old Item) bool {
	return old.Revision != 0 && i.Settings.whole() == old.Settings.whole()
}

// storedOver returns the item as it is read after a transaction of the revision
// has stored it in place of old.
func (i Item) storedOver(old Item, revision int64) Item {
	i.Settings = i.Settings.whole()
	if !i.sameContent(old) {
		i.Revision = revision
	} else {
		i.Revision = old.Revision
	}
	switch {
	case i.sameSettings(old):
		i.SettingsRevision = old.SettingsRevision
	case i.Settings.isDefault():
		i.SettingsRevision = 0
	default:
		i.SettingsRevision = revision
	}
	return i
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
