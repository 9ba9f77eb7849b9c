package main

// Clients that crash during an operation, after each single byte that they could
// have sent.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
)

// wrongScript counts broken invariants at one moment: fields without a deadline or
// the reverse, items in both sets or in none, and archived items that are not
// finished.
var wrongScript = redis.NewScript(4, `
local wrong = 0
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
	if not redis.call('ZSCORE', KEYS[2], field) then wrong = wrong + 1 end
end
if redis.call('HLEN', KEYS[1]) ~= redis.call('ZCARD', KEYS[2]) then wrong = wrong + 1 end
for _, id in ipairs(redis.call('SMEMBERS', KEYS[4])) do
	if redis.call('SISMEMBER', KEYS[3], id) == 1 then wrong = wrong + 1 end
	if redis.call('GET', ARGV[1] .. id) ~= 'finished' then wrong = wrong + 1 end
end
for id = 1, tonumber(redis.call('GET', ARGV[2]) or 0) do
	local sets = redis.call('SISMEMBER', KEYS[3], id) + redis.call('SISMEMBER', KEYS[4], id)
	if sets ~= redis.call('EXISTS', ARGV[1] .. id) then wrong = wrong + 1 end
end
return wrong`)

func wrong(ctx context.Context, c *cache, q *queue) (int, error) {
	conn, err := c.rdb.GetContext(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return redis.Int(wrongScript.DoContext(ctx, conn, c.keys[0], c.keys[1], q.pending, q.archived, q.item, q.last))
}

func TestS6_CutOffAnywhereLeavesNothingThatIsNeverCollected(t *testing.T) {
	dial := startRedis(t)
	rdb := oneShot(t, dial)
	for name, op := range map[string]func(ctx context.Context, c *cache, q *queue) error{
		"write": func(ctx context.Context, c *cache, _ *queue) error {
			_, err := c.write(ctx, "new", "v", time.Hour) // a new field
			return err
		},
		"rewrite": func(ctx context.Context, c *cache, _ *queue) error {
			_, err := c.write(ctx, "expired", "v", time.Hour)
			return err
		},
		"collect": func(ctx context.Context, c *cache, _ *queue) error { _, err := c.collect(ctx, slice); return err },
		"add":     func(ctx context.Context, _ *cache, q *queue) error { _, err := q.add(ctx); return err },
		"finish":  func(ctx context.Context, _ *cache, q *queue) error { _, err := q.finish(ctx, "2"); return err },
		"reopen":  func(ctx context.Context, _ *cache, q *queue) error { _, err := q.reopen(ctx, "3"); return err },
		"archive": func(ctx context.Context, _ *cache, q *queue) error { return q.archive(ctx, slice) },
	} {
		t.Run(name, func(t *testing.T) {
			whole := false
			cuts := 0
			for ; !whole; cuts++ {
				require.Less(t, cuts, 5000, "the operation never completes")
				c, q := newCache(rdb, fmt.Sprint(name, cuts)), newQueue(rdb, fmt.Sprint(name, cuts))
				furnish(t, c, q)

				cut := &cutter{dial: dial}
				cut.left.Store(int64(cuts))
				dying := oneShot(t, cut.connect)
				mine, theirs := *c, *q
				mine.rdb, theirs.rdb = dying, dying
				whole = op(t.Context(), &mine, &theirs) == nil
				_ = dying.Close()

				n, err := wrong(t.Context(), c, q)
				require.NoError(t, err)
				require.Zero(t, n, "after %d bytes", cuts)
				tidyUp(t, c, q)
			}
			t.Logf("cut off after each of %d bytes, and complete with %d", cuts-1, cuts-1)
			require.Greater(t, cuts, 50, "the operation was not cut off")
		})
	}
}

// furnish makes fields, of which two have expired, and items in every state: 1 open,
// 2 finished and 3 archived.
func furnish(t *testing.T, c *cache, q *queue) {
	t.Helper()
	ctx := t.Context()
	for _, field := range []string{"expired", "expired too"} {
		_, err := c.write(ctx, field, "v", time.Millisecond)
		require.NoError(t, err)
	}
	_, err := c.write(ctx, "live", "v", time.Hour)
	require.NoError(t, err)
	for range 3 {
		_, err := q.add(ctx)
		require.NoError(t, err)
	}
	finish := func(id string) {
		found, err := q.finish(ctx, id)
		require.NoError(t, err)
		require.True(t, found)
	}
	finish("3")
	require.NoError(t, q.archive(ctx, 3))
	finish("2")
	awaitExpired(t, c, 2)
}

// tidyUp does the work of the next recruits, and checks that nothing is left.
func tidyUp(t *testing.T, c *cache, q *queue) {
	t.Helper()
	ctx := t.Context()
	_, err := c.collect(ctx, 10)
	require.NoError(t, err)
	left, err := c.expired(ctx)
	require.NoError(t, err)
	require.Zero(t, left)
	value, _, err := c.read(ctx, "live")
	require.NoError(t, err)
	require.NotNil(t, value)

	require.NoError(t, q.archive(ctx, 10))
	for _, id := range members(t, c.rdb, q.pending) {
		require.Equal(t, open, ask(t, redis.String, c.rdb, "GET", q.item+id), "item %s is finished but not archived", id)
	}
	n, err := wrong(ctx, c, q)
	require.NoError(t, err)
	require.Zero(t, n)
	ask(t, redis.String, c.rdb, "FLUSHDB")
}

// awaitExpired waits until n fields have expired by the clock of Redis.
func awaitExpired(t *testing.T, c *cache, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		expired, err := c.expired(t.Context())
		return err == nil && expired >= n
	}, 20*time.Second, time.Millisecond)
}

func TestS6_AReopenedItemIsNotArchived(t *testing.T) {
	dial := startRedis(t)
	rdb := oneShot(t, dial)
	ctx := t.Context()
	q, id := withFinished(t, rdb)

	// Another client reopens the item between the mover's read and its EXEC.
	mover := *q
	mover.rdb = oneShot(t, beforeExec(dial, func() {
		found, err := q.reopen(ctx, id)
		require.NoError(t, err)
		require.True(t, found)
	}))
	require.NoError(t, mover.archive(ctx, slice), "not an error")
	require.Equal(t, []string{id}, members(t, rdb, q.pending))
	require.Empty(t, members(t, rdb, q.archived))

	// An archived item that is reopened moves back.
	_, err := q.finish(ctx, id)
	require.NoError(t, err)
	require.NoError(t, q.archive(ctx, slice))
	require.Equal(t, []string{id}, members(t, rdb, q.archived))
	found, err := q.reopen(ctx, id)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, []string{id}, members(t, rdb, q.pending))
	require.Empty(t, members(t, rdb, q.archived))
}

// withFinished returns a queue with one finished item.
func withFinished(t *testing.T, rdb *redis.Pool) (*queue, string) {
	t.Helper()
	q := newQueue(rdb, "q")
	id, err := q.add(t.Context())
	require.NoError(t, err)
	_, err = q.finish(t.Context(), id)
	require.NoError(t, err)
	return q, id
}

func TestS6_TwoMoversOfOneItem(t *testing.T) {
	dial := startRedis(t)
	rdb := oneShot(t, dial)
	ctx := t.Context()
	q, id := withFinished(t, rdb)
	mover := *q
	mover.rdb = oneShot(t, beforeExec(dial, func() { require.NoError(t, q.archive(ctx, slice)) }))
	require.NoError(t, mover.archive(ctx, slice))
	require.Equal(t, []string{id}, members(t, rdb, q.archived))
	require.Empty(t, members(t, rdb, q.pending))
}

func TestS6_WhatDoesNotExistIsLeftAlone(t *testing.T) {
	rdb := oneShot(t, startRedis(t))
	c, q := newCache(rdb, "c"), newQueue(rdb, "q")
	ctx := t.Context()
	for _, f := range []func(context.Context, string) (bool, error){q.finish, q.reopen} {
		found, err := f(ctx, "7")
		require.NoError(t, err)
		require.False(t, found)
	}
	require.NoError(t, q.archive(ctx, slice))
	value, _, err := c.read(ctx, "f")
	require.NoError(t, err)
	require.Nil(t, value)
	_, err = c.write(ctx, "f", "v", 0)
	require.ErrorContains(t, err, "ttl 0s: must be at least 1ms")
	n, err := c.collect(ctx, slice)
	require.NoError(t, err)
	require.Zero(t, n)
	require.Zero(t, ask(t, redis.Int, rdb, "DBSIZE"))
}

// A script that fails in the middle, because a key has another type, leaves a
// deadline without a value, but never a value without a deadline.
func TestS6_AScriptThatFailsInItsMiddle(t *testing.T) {
	rdb := oneShot(t, startRedis(t))
	c := newCache(rdb, "c")
	ctx := t.Context()
	ask(t, redis.String, rdb, "SET", c.keys[0], "no hash")
	_, err := c.write(ctx, "f", "v", time.Millisecond)
	require.ErrorContains(t, err, "WRONGTYPE")
	ask(t, redis.Int, rdb, "DEL", c.keys[0])

	value, _, err := c.read(ctx, "f")
	require.NoError(t, err)
	require.Nil(t, value)
	awaitExpired(t, c, 1)
	ask(t, redis.String, rdb, "SET", c.keys[0], "no hash")
	_, err = c.collect(ctx, slice)
	require.ErrorContains(t, err, "WRONGTYPE")
	ask(t, redis.Int, rdb, "DEL", c.keys[0])
	n, err := c.collect(ctx, slice)
	require.NoError(t, err)
	require.Equal(t, 1, n, "the deadline is still there")
	require.Zero(t, ask(t, redis.Int, rdb, "DBSIZE"))
}

// A client does not retry an operation without an answer, because another client may
// have built on its effect.
func TestS6_AnAnswerThatIsLost(t *testing.T) {
	dial := startRedis(t)
	ctx := t.Context()
	c := newCache(oneShot(t, dial), "c")
	_, err := c.write(ctx, "f", "before", time.Hour) // this loads the script into Redis
	require.NoError(t, err)
	lost := false
	deaf := *c
	deaf.rdb = oneShot(t, func(dialing context.Context) (net.Conn, error) {
		conn, err := dial(dialing)
		return &deafConn{Conn: conn, lost: &lost, meddle: func() {
			_, err := c.write(ctx, "f", "theirs", time.Hour)
			require.NoError(t, err)
		}}, err
	})
	_, failed := deaf.write(ctx, "f", "mine", time.Hour)
	require.True(t, lost)
	value, _, err := c.read(ctx, "f")
	require.NoError(t, err)
	require.Equal(t, "theirs", *value)
	require.Error(t, failed)
}

// deafConn is a connection that breaks once, after a script was run and before its
// answer arrives.
type deafConn struct {
	net.Conn
	meddle func()
	lost   *bool
	sent   bool
	over   bool
}

func (c *deafConn) Write(p []byte) (int, error) {
	c.sent = bytes.Contains(p, []byte("EVALSHA"))
	return c.Conn.Write(p)
}

func (c *deafConn) Read(p []byte) (int, error) {
	if c.over {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(p)
	if c.sent && !*c.lost {
		*c.lost, c.over = true, true
		c.meddle()
		return 0, io.EOF
	}
	return n, err
}

// beforeExec returns a function to dial whose connections call f right before a
// transaction is sent.
func beforeExec(dial func(ctx context.Context) (net.Conn, error), f func()) func(ctx context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		return &execConn{conn, f}, err
	}
}

type execConn struct {
	net.Conn
	before func()
}

func (c *execConn) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("MULTI")) {
		c.before()
	}
	return c.Conn.Write(p)
}
