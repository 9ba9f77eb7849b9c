package main

// The log for human readers, one line for each event.

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

// journal writes lines. Each line is one write.
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

// word returns an id or a name for a line of the log. It quotes any text that is not
// a plain word, so that no text can imitate a line of the log or a part of one.
func word(s string) string {
	quoted := strconv.Quote(s)
	if s == "" || quoted != `"`+s+`"` || strings.Contains(s, " ") {
		return quoted
	}
	return s
}

// brief returns the beginning of a content, quoted.
func brief(content []byte) string {
	const most = 40
	if len(content) <= most {
		return fmt.Sprintf("%q", content)
	}
	return fmt.Sprintf("%q … (%d bytes)", content[:most], len(content))
}

// tellMembers logs members that join, drain and leave.
func (n *node) tellMembers(ctx context.Context) error {
	known := map[etcd.WorkerID]etcd.MemberState{}
	return n.membership.Watch(ctx, func(members []etcd.MemberState) {
		n.tellBoards(members)
		now := make(map[etcd.WorkerID]etcd.MemberState, len(members))
		for _, m := range members {
			now[m.WorkerID] = m
		}
		for _, w := range slices.SortedFunc(maps.Keys(known), older) {
			switch _, there := now[w]; {
			case !there && known[w].Draining:
				n.journal.say("%s left after draining", word(w.Name))
			case !there && w.Name == n.name && n.leaving.Load():
				// This process logs its own end.
			case !there:
				n.journal.say("%s left: lease expired", word(w.Name))
			}
		}
		for _, m := range members {
			before, there := known[m.WorkerID]
			switch {
			case !there:
				n.journal.say("%s joined", word(m.Name))
			case m.Draining && !before.Draining:
				n.journal.say("%s is draining", word(m.Name))
			}
		}
		known = now
	})
}

func older(a, b etcd.WorkerID) int { return cmp.Compare(a.Incarnation, b.Incarnation) }

// tellName logs why this process cannot join yet if another process has its name.
// That process is a killed predecessor, or the name is used twice by mistake.
func (n *node) tellName(ctx context.Context) {
	members, err := n.membership.List(ctx)
	if err != nil {
		return // the member gets the same error and logs it
	}
	if slices.ContainsFunc(members, func(m etcd.MemberState) bool { return m.Name == n.name }) {
		n.journal.say("waiting: another process has the name %s until its lease expires", word(n.name))
	}
}

// tellLeader logs the leader after each change. It starts a watch only after a
// successful read, because closing etcd's client (3.7.3) hangs if a watch is refused
// at the same moment.
func (n *node) tellLeader(ctx context.Context) error {
	var changed clientv3.WatchChan
	tick := time.NewTimer(0) // then every lease, in case the watch misses a change
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
			n.journal.say("no leader")
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
