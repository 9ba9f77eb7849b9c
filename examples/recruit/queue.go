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

	"github.com/redis/go-redis/v9"
)

const (
	open     = "open"
	finished = "finished"
)

// queue holds the items. Its methods may be called from any goroutine, in any number
// of processes.
type queue struct {
	rdb               *redis.Client
	pending, archived string // sets of ids
	item              string // the prefix of the items' keys
	last              string // the last id
}

func newQueue(rdb *redis.Client, name string) *queue {
	name = "{" + name + "}:" // one slot of a cluster
	return &queue{rdb: rdb, pending: name + "pending", archived: name + "archived", item: name + "item:", last: name + "last"}
}

// add makes a new open item and returns its id. An id is never used again, even if
// add fails.
func (q *queue) add(ctx context.Context) (string, error) {
	n, err := q.rdb.Incr(ctx, q.last).Result()
	if err != nil {
		return "", fmt.Errorf("add an item: %w", err)
	}
	id := fmt.Sprint(n)
	_, err = q.rdb.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.Set(ctx, q.item+id, open, 0)
		tx.SAdd(ctx, q.pending, id)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("add item %s: %w", id, err)
	}
	return id, nil
}

// finish marks an item as finished. It returns false if the item does not exist.
func (q *queue) finish(ctx context.Context, id string) (bool, error) {
	err := q.rdb.SetArgs(ctx, q.item+id, finished, redis.SetArgs{Mode: "XX"}).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("finish item %s: %w", id, err)
	}
	return true, nil
}

// reopen marks an item as open and moves it to the pending set. It returns false if
// the item does not exist.
func (q *queue) reopen(ctx context.Context, id string) (bool, error) {
	_, err := q.rdb.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.SetArgs(ctx, q.item+id, open, redis.SetArgs{Mode: "XX"})
		tx.SMove(ctx, q.archived, q.pending, id)
		return nil
	})
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reopen item %s: %w", id, err)
	}
	return true, nil
}

// archive picks up to n random pending items and moves those that are finished. If
// another client changes one of them in the meantime, it moves none and returns nil.
func (q *queue) archive(ctx context.Context, n int) error {
	ids, err := q.rdb.SRandMemberN(ctx, q.pending, int64(n)).Result()
	if err != nil {
		return fmt.Errorf("archive: choose items: %w", err)
	}
	if len(ids) == 0 {
		return nil
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = q.item + id
	}
	err = q.rdb.Watch(ctx, func(tx *redis.Tx) error {
		states, err := tx.MGet(ctx, keys...).Result()
		if err != nil {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(move redis.Pipeliner) error {
			for i, state := range states {
				if state == finished {
					move.SMove(ctx, q.pending, q.archived, ids[i])
				}
			}
			return nil
		})
		return err
	}, keys...)
	if err != nil && !errors.Is(err, redis.TxFailedErr) {
		return fmt.Errorf("archive items %v: %w", ids, err)
	}
	return nil
}
