package memory

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/replica"
)

// Table is a [replica.Backend] and a [replica.Waiter] in memory. It is lost with its
// process. It is safe for concurrent use.
type Table struct {
	mu      sync.Mutex
	stored  contents
	changed chan struct{} // closed with the next change that others should see soon
}

// contents is what a table stores.
type contents struct {
	server        string
	confirmed     bool
	epoch, leader uint64
	longest       time.Duration
	members       map[uint64]record
}

type record struct {
	member  replica.Member
	retired bool
}

var (
	_ replica.Backend = (*Table)(nil)
	_ replica.Waiter  = (*Table)(nil)
)

// New returns an empty table.
func New() *Table {
	return &Table{changed: make(chan struct{}), stored: contents{server: rand.Text(), members: make(map[uint64]record)}}
}

// Sync implements [replica.Backend].
func (t *Table) Sync(ctx context.Context, u replica.Update) (replica.View, error) {
	if err := ctx.Err(); err != nil {
		return replica.View{}, fmt.Errorf("sync: %w", context.Cause(ctx))
	}
	if err := u.Check(); err != nil {
		return replica.View{}, fmt.Errorf("sync: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	news, err := t.stored.apply(u)
	if err != nil {
		return replica.View{}, fmt.Errorf("sync: %w", err)
	}
	if news {
		close(t.changed)
		t.changed = make(chan struct{})
	}
	return t.stored.view(), nil
}

// apply carries out u, and reports whether others should see the result soon.
func (c *contents) apply(u replica.Update) (news bool, err error) {
	self := u.Self
	before, known := c.members[self.ID]
	if before.retired {
		return false, replica.ErrRetired
	}
	if self.Heartbeat > before.member.Heartbeat {
		self.Attributes = maps.Clone(self.Attributes)
		self.Settings.Labels = slices.Clone(self.Settings.Labels)
		c.members[self.ID] = record{member: self}
		c.longest = max(c.longest, self.Lease)
		news = !known || before.member.Draining != self.Draining || before.member.Passive != self.Passive
	}
	if u.Confirm == c.server {
		c.confirmed = true
	}
	for _, id := range u.Left {
		delete(c.members, id)
		news = true
	}
	for _, id := range u.Retire {
		if r, ok := c.members[id]; ok {
			r.retired = true
			c.members[id] = r
		}
	}
	if c.confirmed {
		for id, heartbeat := range u.Evict {
			if r, ok := c.members[id]; ok && r.member.Heartbeat == heartbeat {
				delete(c.members, id)
				news = true
			}
		}
	}
	if u.Campaign > 0 && u.Epoch == c.epoch && c.confirmed {
		c.epoch, c.leader = u.Campaign, self.ID
		news = true
	}
	return news, nil
}

func (c *contents) view() replica.View {
	v := replica.View{
		Epoch: c.epoch, Leader: c.leader, Lease: c.longest, Server: c.server, Confirmed: c.confirmed,
		Members: make([]replica.Member, 0, len(c.members)),
	}
	for _, r := range c.members {
		m := r.member
		m.Attributes = maps.Clone(m.Attributes)
		m.Settings.Labels = slices.Clone(m.Settings.Labels)
		v.Members = append(v.Members, m)
	}
	return v
}

// Wait implements [replica.Waiter].
func (t *Table) Wait(ctx context.Context) error {
	t.mu.Lock()
	changed := t.changed
	t.mu.Unlock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Backup is a copy of the contents of a table.
type Backup struct{ stored contents }

// Backup returns a copy of the table's contents, for [Table.Restore].
func (t *Table) Backup() *Backup {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &Backup{t.stored.clone()}
}

// Restore replaces the contents by those of a backup, as of a database that is restored
// from a dump: the table is another Server, which is not confirmed. It is for tests.
func (t *Table) Restore(b *Backup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stored = b.stored.clone()
	t.stored.server, t.stored.confirmed = rand.Text(), false
}

func (c *contents) clone() contents {
	copied := *c
	copied.members = maps.Clone(c.members)
	return copied
}
