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
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/etcd"
)

// journal writes lines, each of them whole.
type journal struct {
	name string
	mu   sync.Mutex
	w    io.Writer
}

func newJournal(w io.Writer, name string) *journal { return &journal{name: name, w: w} }

func (j *journal) say(format string, args ...any) {
	line := time.Now().Format("15:04:05.000 ") + j.name + " " + fmt.Sprintf(format, args...) + "\n"
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _ = io.WriteString(j.w, line)
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
				n.journal.say("%s left, as it had said", w.Name)
			case !there:
				n.journal.say("%s left: its lease has ended", w.Name)
			}
		}
		for _, m := range members {
			before, there := known[m.Worker]
			switch {
			case !there:
				n.journal.say("%s joined", m.Name)
			case m.Draining && !before.Draining:
				n.journal.say("%s is to end empty", m.Name)
			}
		}
		known = now
	})
}

func older(a, b etcd.Worker) int { return cmp.Compare(a.Incarnation, b.Incarnation) }

// tellLeader says who leads.
func (n *node) tellLeader(ctx context.Context) error {
	tick := time.NewTicker(min(n.interval, 250*time.Millisecond))
	defer tick.Stop()
	var last uint64
	for {
		leader, err := n.election.Leader(ctx)
		switch {
		case err == nil && leader.Epoch != last:
			n.journal.say("%s leads, epoch %d", leader.Name, leader.Epoch)
			last = leader.Epoch
		case errors.Is(err, etcd.ErrNoLeader) && last != 0:
			n.journal.say("nobody leads")
			last = 0
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
