package kubernetes

import (
	"reflect"
	"sync"

	"github.com/f8949c05/orchestrator/replica"
)

// object is a Lease as it was seen last.
type object struct {
	lease   *lease
	kind    string
	id      uint64
	version uint64
	genuine bool   // the record is as this package has written it
	changed uint64 // revision of the cache at which anything but a heartbeat has changed

	table  tableRecord
	member replica.Member
	gone   string // why the member is removed
	report reportRecord
	orders ordersRecord
	tasks  tasksRecord
	writer writer // of orders or tasks
	seen   uint64 // the highest number in it, for View.Seen
}

// newObject returns what a Lease holds.
func newObject(n names, l *lease) *object {
	o := &object{lease: l, version: versionOf(l.Metadata)}
	o.kind, o.id = n.parse(l.Metadata.Name)
	record := l.Metadata.Annotations[keyRecord]
	numbers := []uint64{}
	switch o.kind {
	case kindTable:
		o.table, o.genuine = decode[tableRecord](record)
	case kindMember:
		o.member, o.genuine = decode[replica.Member](record)
		if !o.genuine || o.member.ID != o.id { // it gets no tasks, and lives as long as the record changes
			o.member = replica.Member{ID: o.id, Heartbeat: o.version, Lease: replica.MaxLease, Draining: true, Role: replica.CandidateOnly}
		}
		o.gone = l.Metadata.Annotations[keyGone]
		o.report, _ = decode[reportRecord](l.Metadata.Annotations[keyReport])
		numbers = append(numbers, o.member.Epoch, o.report.Applied)
	case kindOrders:
		o.orders, o.genuine = decode[ordersRecord](record)
		o.writer = o.orders.writer
		all, _ := o.orders.of(o.id)
		for _, order := range all {
			numbers = append(numbers, order.Version)
		}
	case kindTasks:
		o.tasks, o.genuine = decode[tasksRecord](record)
		o.writer = o.tasks.writer
	}
	for _, n := range append(numbers, o.writer.Epoch) {
		if n < replica.MaxSeen {
			o.seen = max(o.seen, n)
		}
	}
	return o
}

// text returns an annotation; "" if there is no object.
func (o *object) text(key string) string {
	if o == nil {
		return ""
	}
	return o.lease.Metadata.Annotations[key]
}

// cache is what was seen of a table. Each change has a revision, which has a meaning in this process
// only. Its maps are used in do.
type cache struct {
	names names

	mu       sync.Mutex
	self     uint64             // whose own records these are
	follows  bool               // reports of others are watched for, their orders, and tasks
	objects  map[string]*object // by name
	revision uint64
	full     uint64        // Views since an earlier revision show everything
	woken    uint64        // revision of the last change that ends a Wait
	changed  chan struct{} // closed then
}

func newCache(n names) *cache {
	return &cache{names: n, objects: make(map[string]*object), changed: make(chan struct{})}
}

// do calls f, which uses the cache alone.
func (c *cache) do(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// object returns what was seen last; nil: nothing.
func (c *cache) object(name string) (o *object) {
	c.do(func() { o = c.objects[name] })
	return o
}

// all returns what was seen of some kinds.
func (c *cache) all(kinds ...string) (all []*object) {
	c.do(func() {
		for _, o := range c.objects {
			for _, kind := range kinds {
				if o.kind == kind {
					all = append(all, o)
				}
			}
		}
	})
	return all
}

// learn records a Lease, unless a later version was seen, and returns what is known now.
func (c *cache) learn(l *lease) *object {
	name := l.Metadata.Name
	if was := c.object(name); was != nil && versionOf(l.Metadata) <= was.version {
		return was
	}
	o := newObject(c.names, l)
	c.do(func() {
		switch was := c.objects[name]; {
		case was != nil && o.version <= was.version:
			o = was
		case o.kind != "":
			c.revision++
			c.objects[name] = o
			c.merge(o, was)
		}
	})
	return o
}

// merge decides what a change means. It is called in do.
func (c *cache) merge(o, was *object) {
	if was == nil {
		was = &object{lease: &lease{}}
	}
	own, wakes := o.id == c.self, false
	o.changed = was.changed
	switch o.kind {
	case kindTable:
		before := was.table
		before.Beat = o.table.Beat
		wakes = !reflect.DeepEqual(o.table, before)
	case kindMember:
		if !o.genuine && was.kind != "" { // it stays as it was, and lives
			o.member = was.member
			if o.member.Heartbeat = o.version; o.report.Server == "" {
				o.report = was.report
			}
		}
		before := was.member
		before.Heartbeat, before.Epoch = o.member.Heartbeat, o.member.Epoch
		member := o.gone != was.gone || !reflect.DeepEqual(o.member, before)
		report := o.text(keyReport) != was.text(keyReport)
		if member || report {
			o.changed = c.revision
		}
		wakes = o.gone != was.gone || !own && (member || report && c.follows)
	default:
		o.changed, wakes = c.revision, own || c.follows
		if !o.genuine { // it is written anew
			c.full = c.revision
		}
	}
	if wakes {
		c.wake()
	}
}

// drop forgets a Lease that a list or a watch shows to be gone, as of a version. The record of a member
// without a mark was deleted by hand: it is kept, because the member publishes it anew. Otherwise a
// leader would be elected that knows of no report, and stop tasks. It is called in do.
func (c *cache) drop(name string, version uint64) {
	if o := c.objects[name]; o != nil && o.version <= version && (o.kind != kindMember || o.gone != "") {
		c.forget(name)
	}
}

// forget forgets a Lease that is certainly gone. It is called in do.
func (c *cache) forget(name string) {
	if c.objects[name] != nil {
		delete(c.objects, name)
		c.revision++
		c.full = c.revision
		c.wake()
	}
}

// wake ends every Wait. It is called in do.
func (c *cache) wake() {
	c.woken = c.revision
	close(c.changed)
	c.changed = make(chan struct{})
}
