package main

// Items of work, which move to an archive when they are finished. An item is a
// member of one of two sets, pending and archived. A separate key holds its state,
// open or finished.
//
// An item is always in exactly one of the sets, and an archived item is always
// finished. A finished item is archived eventually.
//
// Archiving takes more than one step, because the items to move depend on what was
// read: WATCH the items, read them, and EXEC only if none has changed.
//
//  1. A mover picks items, watches their keys, and finds that some are finished.
//  2. Another client reopens one of them: its key changes.
//  3. The mover's EXEC does nothing, and the next recruit tries again. If the mover
//     had been first, the reopening would have moved the item back, because it
//     always does both.
//
// Two movers may take the same item. A move does not change the item's key, so both
// EXEC succeed, and the second SMOVE does nothing. Changes between the choice of
// items and WATCH do no harm, because only the later read counts. If an item is
// finished while a mover looks at it, the mover's EXEC fails, or the item waits for
// a later mover.
//
// A mover that crashes before its EXEC has arrived in full has changed nothing,
// because Redis drops the queued commands and the watch with the connection. After
// that, the move is complete. The other operations are a single command or an
// unconditional transaction, for which the same holds.

import (
	"context"
	"errors"
	"fmt"

	"github.com/gomodule/redigo/redis"
)

const (
	open     = "open"
	finished = "finished"
)

// queue holds the items. Its methods may be called from any goroutine, in any number
// of processes.
type queue struct {
	rdb               *redis.Pool
	pending, archived string // sets of ids
	item              string // the prefix of the items' keys
	last              string // the last id
}

func newQueue(rdb *redis.Pool, name string) *queue {
	name = "{" + name + "}:" // one slot of a cluster
	return &queue{rdb: rdb, pending: name + "pending", archived: name + "archived", item: name + "item:", last: name + "last"}
}

// add makes a new open item and returns its id. An id is never used again, even if
// add fails.
func (q *queue) add(ctx context.Context) (string, error) {
	n, err := redis.Int64(do(ctx, q.rdb, "INCR", q.last))
	if err != nil {
		return "", fmt.Errorf("add an item: %w", err)
	}
	id := fmt.Sprint(n)
	_, err = transact(ctx, q.rdb, command{"SET", q.item + id, open}, command{"SADD", q.pending, id})
	if err != nil {
		return "", fmt.Errorf("add item %s: %w", id, err)
	}
	return id, nil
}

// finish marks an item as finished. It returns false if the item does not exist.
func (q *queue) finish(ctx context.Context, id string) (bool, error) {
	answer, err := do(ctx, q.rdb, "SET", q.item+id, finished, "XX")
	if err != nil {
		return false, fmt.Errorf("finish item %s: %w", id, err)
	}
	return answer != nil, nil
}

// reopen marks an item as open and moves it to the pending set. It returns false if
// the item does not exist.
func (q *queue) reopen(ctx context.Context, id string) (bool, error) {
	answers, err := transact(ctx, q.rdb, command{"SET", q.item + id, open, "XX"}, command{"SMOVE", q.archived, q.pending, id})
	if err != nil {
		return false, fmt.Errorf("reopen item %s: %w", id, err)
	}
	return answers[0] != nil, nil
}

// archive picks up to n random pending items and moves those that are finished. If
// another client changes one of them in the meantime, it moves none and returns nil.
func (q *queue) archive(ctx context.Context, n int) error {
	ids, err := redis.Strings(do(ctx, q.rdb, "SRANDMEMBER", q.pending, n))
	if err != nil {
		return fmt.Errorf("archive: choose items: %w", err)
	}
	if len(ids) == 0 {
		return nil
	}
	if err := q.move(ctx, ids); err != nil && !errors.Is(err, errChanged) {
		return fmt.Errorf("archive items %v: %w", ids, err)
	}
	return nil
}

// move moves the items that are finished.
func (q *queue) move(ctx context.Context, ids []string) error {
	conn, err := q.rdb.GetContext(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // ends the watch
	keys := make([]any, len(ids))
	for i, id := range ids {
		keys[i] = q.item + id
	}
	if _, err := redis.DoContext(conn, ctx, "WATCH", keys...); err != nil {
		return err
	}
	states, err := redis.Strings(redis.DoContext(conn, ctx, "MGET", keys...))
	if err != nil {
		return err
	}
	var moves []command
	for i, state := range states {
		if state == finished {
			moves = append(moves, command{"SMOVE", q.pending, q.archived, ids[i]})
		}
	}
	if len(moves) == 0 {
		return nil
	}
	_, err = execute(ctx, conn, moves)
	return err
}
