package main

// The log: one line for everything that a person wants to know.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/etcd"
)

// journal writes lines, each of them whole.
type journal struct {
	name string
	mu   sync.Mutex
	w    io.Writer
}

func newJournal(w io.Writer, name string) *journal { return &journal{name: word(name), w: w} }

func (j *journal) say(format string, args ...any) {
	line := time.Now().Format("15:04:05.000 ") + j.name + " " + fmt.Sprintf(format, args...) + "\n"
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _ = io.WriteString(j.w, line)
}

// word shows an id or a name, which may be any text: as it is where it reads as
// one word, and quoted otherwise, so that none passes for a line of this log, or
// for another part of one.
func word(s string) string {
	quoted := strconv.Quote(s)
	if s == "" || quoted != `"`+s+`"` || strings.Contains(s, " ") {
		return quoted
	}
	return s
}

// brief shows the beginning of a content.
func brief(content []byte) string {
	const most = 40
	if len(content) <= most {
		return fmt.Sprintf("%q", content)
	}
	return fmt.Sprintf("%q … (%d bytes)", content[:most], len(content))
}

// tellMembers says who joins and leaves.
func (n *node) tellMembers(ctx context.Context) error {
	known := map[etcd.Worker]etcd.MemberState{}
	return n.membership.Watch(ctx, func(members []etcd.MemberState) {
		now := make(map[etcd.Worker]etcd.MemberState, len(members))
		for _, m := range members {
			now[m.Worker] = m
		}
		for _, w := range slices.SortedFunc(maps.Keys(known), older) {
			switch _, there := now[w]; {
			case !there && known[w].Draining:
				n.journal.say("%s left, as it had said", word(w.Name))
			case !there && w.Name == n.name && n.leaving.Load():
				// It says so itself.
			case !there:
				n.journal.say("%s left: its lease has ended", word(w.Name))
			}
		}
		for _, m := range members {
			before, there := known[m.Worker]
			switch {
			case !there:
				n.journal.say("%s joined", word(m.Name))
			case m.Draining && !before.Draining:
				n.journal.say("%s is to end empty", word(m.Name))
			}
		}
		known = now
	})
}

func older(a, b etcd.Worker) int { return cmp.Compare(a.Incarnation, b.Incarnation) }

// tellName says why this process takes its time to join, where another has its
// name: that is its predecessor, which was killed, or a mistake.
func (n *node) tellName(ctx context.Context) {
	members, err := n.membership.List(ctx)
	if err != nil {
		return // the member meets the same, and says so
	}
	if slices.ContainsFunc(members, func(m etcd.MemberState) bool { return m.Name == n.name }) {
		n.journal.say("waits: another process has the name %s, until its lease has ended", word(n.name))
	}
}

// tellLeader says who leads, as soon as that changes. It watches only what etcd
// has let it read: closing etcd's client (3.7.3) hangs where a watch has been
// refused that very moment.
func (n *node) tellLeader(ctx context.Context) error {
	var changed clientv3.WatchChan
	tick := time.NewTimer(0) // then each lease, for what the watch misses
	defer tick.Stop()
	var last uint64
	for {
		leader, err := n.election.Leader(ctx)
		switch {
		case err == nil && leader.Epoch != last:
			n.journal.say("%s leads, epoch %d", word(leader.Name), leader.Epoch)
			n.leader.Store(&leader.Name)
			last = leader.Epoch
		case errors.Is(err, etcd.ErrNoLeader) && last != 0:
			n.journal.say("nobody leads")
			n.leader.Store(nil)
			last = 0
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case _, ok := <-changed:
			if !ok {
				changed = nil
			}
		case <-tick.C:
			if answered := err == nil || errors.Is(err, etcd.ErrNoLeader); answered && changed == nil {
				changed = n.client.Watch(clientv3.WithRequireLeader(ctx), n.prefix+"leader/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
			}
			tick.Reset(n.lease)
		}
	}
}
