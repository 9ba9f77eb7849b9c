package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
)

// WorkerID identifies one membership of a named worker. A worker that rejoins under
// the same name is another WorkerID, so no call meant for an earlier membership
// reaches it.
type WorkerID struct {
	Name string
	// Incarnation is the revision at which the membership began. It rises with each
	// worker that joins.
	Incarnation int64
}

// String returns the name.
func (w WorkerID) String() string { return w.Name }

// MarshalText returns the name, which also represents a WorkerID in JSON.
func (w WorkerID) MarshalText() ([]byte, error) { return []byte(w.Name), nil }

// UnmarshalText sets the name, and nothing else: the text has no more.
func (w *WorkerID) UnmarshalText(text []byte) error {
	*w = WorkerID{Name: string(text)}
	return nil
}

// MemberState describes a worker that is a member.
type MemberState struct {
	WorkerID
	// Draining reports whether the worker drains, because it asked for it or because
	// its name was drained ([Registry.Drain]).
	Draining   bool
	Attributes map[string]string           // set with WithAttributes; read-only
	Settings   orchestrator.WorkerSettings // set with WithSettings; Labels is read-only
}

// memberStateJSON is the JSON form of MemberState.
type memberStateJSON struct {
	Name        string            `json:"name"`
	Incarnation int64             `json:"incarnation"`
	Draining    bool              `json:"draining"`
	Attributes  map[string]string `json:"attributes,omitempty"`
	orchestrator.WorkerSettings
}

// MarshalJSON returns a JSON object. Without it, the promoted MarshalText of WorkerID
// would reduce the state to a name.
func (m MemberState) MarshalJSON() ([]byte, error) {
	return json.Marshal(memberStateJSON{m.Name, m.Incarnation, m.Draining, m.Attributes, m.Settings})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (m *MemberState) UnmarshalJSON(data []byte) error {
	var in memberStateJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*m = MemberState{WorkerID{in.Name, in.Incarnation}, in.Draining, in.Attributes, in.WorkerSettings}
	return nil
}

// memberValue is the value of a member's key.
type memberValue struct {
	Incarnation string            `json:"incarnation"` // of the worker's process, as in its claims
	Lease       int64             `json:"lease"`
	Draining    bool              `json:"draining,omitempty"`
	Attributes  map[string]string `json:"attributes,omitempty"`
	Cluster     uint64            `json:"cluster,omitempty"`
	// Settings is an orchestrator.WorkerSettings. It is decoded apart from the rest, which
	// counts even if a program of another version wrote settings that are unknown here.
	Settings json.RawMessage `json:"settings,omitempty"`
}

// settingsValue returns the settings for a member's value; nil for the default.
func settingsValue(s orchestrator.WorkerSettings) json.RawMessage {
	if s.Equal(orchestrator.WorkerSettings{}) {
		return nil
	}
	b, _ := json.Marshal(s) // strings and numbers never fail
	return b
}

// Membership lists the members. A worker is a member by a key under a lease that it
// keeps alive. When the lease expires, the worker's assignments and claims expire
// with it. The worker has stopped its tasks by then, because it stops them earlier
// by a margin.
//
// A Membership may be used from many goroutines at the same time.
type Membership struct{ preflight }

// NewMembership returns the membership under the prefix. It does not contact etcd;
// the first call of a method does.
func NewMembership(c *clientv3.Client, opts ...Option) (*Membership, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, fmt.Errorf("new membership: %w", err)
	}
	return &Membership{preflight{settings: s, client: c}}, nil
}

// List returns the current members, sorted by name.
func (m *Membership) List(ctx context.Context) ([]MemberState, error) {
	if err := m.enter(ctx); err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	resp, err := m.client.Txn(ctx).Then(
		clientv3.OpGet(m.layout.MembersPrefix(), clientv3.WithPrefix()),
		clientv3.OpGet(m.layout.DrainsPrefix(), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
	).Commit()
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	drains := make(map[string]bool)
	for _, kv := range found(resp.Responses[1]) {
		if _, worker, _, ok := m.layout.Parse(string(kv.Key)); ok {
			drains[worker] = true
		}
	}
	var members []MemberState
	for _, kv := range found(resp.Responses[0]) {
		if _, worker, _, ok := m.layout.Parse(string(kv.Key)); ok {
			state := m.read(worker, kv.CreateRevision, kv.Value)
			state.Draining = state.Draining || drains[worker]
			members = append(members, state)
		}
	}
	sortMembers(members)
	return members, nil
}

// Watch calls f with the current members, sorted by name, and again after each
// change. It calls f at least once, from one goroutine, and f owns the slice. Watch
// returns the cause of ctx, [ErrForeignPrefix], or an error of etcd at the first
// contact that rejects the client's user. It survives all other errors.
func (m *Membership) Watch(ctx context.Context, f func([]MemberState)) error {
	if err := m.await(ctx); err != nil {
		return fmt.Errorf("watch members: %w", err)
	}
	cache := newMemberCache(m)
	return m.mirror().RunAcrossClusters(ctx, func(_ mirror.At, changes []mirror.Change) {
		if gone, came := cache.apply(changes); len(gone)+len(came) > 0 || !cache.begun {
			cache.begun = true
			f(cache.list())
		}
	})
}

// Feed reports all members to o, and then, within milliseconds, each member that
// joins, leaves or is drained, for as long as the leadership lasts. When Feed
// returns, o knows everything that was written before the leader was elected, and
// may run its first term. Feed fails if ctx or the leadership ends first.
//
// Call it in the load function of [LeadWith], which makes an orchestrator that keeps
// a silent worker until it is removed.
func (m *Membership) Feed(ctx context.Context, l *Leadership, o Workers) error {
	f := &memberFeed{cache: newMemberCache(m), o: o}
	return l.feed(ctx, "workers", m.prefix, m.mirror(), f.tell)
}

// mirror copies the range from drains/ to members/. The keys in between are the
// candidates', which are few and change only when a candidate comes or goes.
func (m *Membership) mirror() *mirror.Mirror {
	return mirror.New(m.client, mirror.Options{
		From:   m.layout.DrainsPrefix(),
		End:    clientv3.GetPrefixRangeEnd(m.layout.MembersPrefix()),
		Logger: m.logger,
	})
}

func (m *Membership) read(worker string, create int64, value []byte) MemberState {
	state := MemberState{WorkerID: WorkerID{Name: worker, Incarnation: create}}
	var v memberValue
	if err := json.Unmarshal(value, &v); err != nil {
		m.logger.Warn("member value unreadable, attributes ignored", "worker", worker, "err", err)
		return state
	}
	state.Draining, state.Attributes, state.Settings = v.Draining, v.Attributes, m.readSettings(worker, v.Settings)
	return state
}

// readSettings returns the settings in a member's value. If they cannot be read, the
// worker counts as one without settings: it must not keep the leader from its other
// workers.
func (m *Membership) readSettings(worker string, value json.RawMessage) orchestrator.WorkerSettings {
	var s orchestrator.WorkerSettings
	if len(value) == 0 {
		return s
	}
	err := json.Unmarshal(value, &s)
	if err == nil {
		err = s.Check()
	}
	if err != nil {
		m.logger.Error("member's settings invalid, worker counts as one without labels", "worker", worker, "err", err)
		return orchestrator.WorkerSettings{}
	}
	return s
}

func sortMembers(members []MemberState) {
	slices.SortFunc(members, func(a, b MemberState) int { return strings.Compare(a.Name, b.Name) })
}

// memberCache holds the known members and drains.
type memberCache struct {
	membership *Membership
	members    map[string]MemberState // Draining as the member itself reported it
	drains     map[string]bool
	begun      bool
}

func newMemberCache(m *Membership) *memberCache {
	return &memberCache{membership: m, members: make(map[string]MemberState), drains: make(map[string]bool)}
}

// apply applies changes of keys, and returns the members that left, and those that
// joined or changed. A member that was replaced by another of the same name is in
// both.
func (c *memberCache) apply(changes []mirror.Change) (gone []WorkerID, came []MemberState) {
	touched := make(map[string]bool)
	var order []string
	for _, ch := range changes {
		kind, name, _, _ := c.membership.layout.Parse(ch.Key)
		switch {
		case kind == keys.Drain && ch.New != nil:
			c.drains[name] = true
		case kind == keys.Drain:
			delete(c.drains, name)
		case kind == keys.Member:
			if ch.Old != nil && (ch.New == nil || ch.New.Create != ch.Old.Create) {
				gone = append(gone, WorkerID{name, ch.Old.Create})
				delete(c.members, name)
			}
			if ch.New != nil {
				c.members[name] = c.membership.read(name, ch.New.Create, ch.New.Value)
			}
		default:
			continue
		}
		if !touched[name] {
			touched[name] = true
			order = append(order, name)
		}
	}
	for _, name := range order {
		if member, ok := c.members[name]; ok {
			came = append(came, c.shown(member))
		}
	}
	return gone, came
}

func (c *memberCache) shown(m MemberState) MemberState {
	m.Draining = m.Draining || c.drains[m.Name]
	return m
}

func (c *memberCache) list() []MemberState {
	members := make([]MemberState, 0, len(c.members))
	for _, member := range c.members {
		members = append(members, c.shown(member))
	}
	sortMembers(members)
	return members
}

// Workers is the part of an orchestrator that receives the members.
type Workers interface {
	UpdateWorkers(workers []orchestrator.Worker[WorkerID]) error
	AddWorker(name WorkerID, opts ...orchestrator.WorkerOption) error
	RemoveWorker(name WorkerID)
}

var _ Workers = (*orchestrator.Orchestrator[WorkerID, string])(nil)

// memberFeed passes the members on to an orchestrator.
type memberFeed struct {
	cache *memberCache
	o     Workers
}

// tell passes changes on to o. The first call passes all members on.
func (f *memberFeed) tell(changes []mirror.Change) error {
	gone, came := f.cache.apply(changes)
	log := f.cache.membership.logger
	if !f.cache.begun {
		f.cache.begun = true
		return f.tellAll()
	}
	for _, w := range gone {
		f.o.RemoveWorker(w)
		log.Info("worker left", "worker", w.Name, "incarnation", w.Incarnation)
	}
	for _, member := range came {
		opts := []orchestrator.WorkerOption{orchestrator.WithWorkerSettings(member.Settings)}
		if member.Draining {
			opts = append(opts, orchestrator.WithWorkerDraining())
		}
		if err := f.o.AddWorker(member.WorkerID, opts...); err != nil {
			return err
		}
		log.Info("worker joined or changed", "worker", member.Name, "incarnation", member.Incarnation, "draining", member.Draining)
	}
	return nil
}

func (f *memberFeed) tellAll() error {
	var workers []orchestrator.Worker[WorkerID]
	for _, member := range f.cache.list() {
		workers = append(workers, orchestrator.NewWorker(member.WorkerID, member.Draining, member.Settings))
	}
	return f.o.UpdateWorkers(workers)
}
