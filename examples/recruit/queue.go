package main

// Items that are worked on, and once finished are moved to an archive. An item is
// a member of one of two sets, pending and archived, and has a key of its own
// with its state, open or finished.
//
// What always holds: an item is in exactly one of the sets, and one that is
// archived is finished. What holds sooner or later: one that is finished is
// archived.
//
// To archive takes more than one step, since what is moved depends on what was
// read: WATCH the items, read them, and EXEC only if nobody has touched them.
//
//  1. A mover picks items, watches their keys, and finds some finished.
//  2. Somebody opens one of them again: its key changes.
//  3. The mover's EXEC does nothing, and the next recruit looks again. Had the
//     mover been first, to open it again would have moved it back, as it always
//     does both.
//
// Two movers of one item: a move does not touch the item's key, so both EXEC; the
// second SMOVE finds nothing to move, and does nothing. Between the choice of
// items and WATCH anything may happen: what counts is read after that. And who
// finishes an item while a mover looks at it only has that mover give up, or
// miss it this time.
//
// A mover that is gone before its EXEC has arrived in full has done nothing, since
// Redis drops what was queued, and the watch, with the connection; afterwards
// everything is done. The other operations are a single command or a transaction
// without conditions, for which the same holds.

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

// queue is the items. Its methods may be called from any goroutine, in any number
// of processes.
type queue struct {
	rdb               *redis.Client
	pending, archived string // sets of ids
	item              string // what the keys of items begin with
	last              string // the last id
}

func newQueue(rdb *redis.Client, name string) *queue {
	name = "{" + name + "}:" // one slot of a cluster
	return &queue{rdb: rdb, pending: name + "pending", archived: name + "archived", item: name + "item:", last: name + "last"}
}

// add makes a new item, which is open. Its id is not used again, also where add
// fails.
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

// finish notes down that an item is finished. One that does not exist it leaves
// alone, and reports so.
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

// reopen makes an item open again, wherever it is. One that does not exist it
// leaves alone, and reports so.
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

// archive looks at n pending items, by chance, and moves those that are finished.
// Where somebody changes one of them meanwhile it moves none.
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
