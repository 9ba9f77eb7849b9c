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

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// wrongScript counts broken invariants at one moment: fields without a deadline or
// the reverse, items in both sets or in none, and archived items that are not
// finished.
var wrongScript = redis.NewScript(`
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
	return wrongScript.Run(ctx, c.rdb, append(c.keys, q.pending, q.archived), q.item, q.last).Int()
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
	for _, id := range c.rdb.SMembers(ctx, q.pending).Val() {
		require.Equal(t, open, c.rdb.Get(ctx, q.item+id).Val(), "item %s is finished but not archived", id)
	}
	n, err := wrong(ctx, c, q)
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, c.rdb.FlushDB(ctx).Err())
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
	rdb := oneShot(t, startRedis(t))
	ctx := t.Context()
	q, id := withFinished(t, rdb)

	// Another client reopens the item between the mover's read and its EXEC.
	mover := *q
	mover.rdb = oneShot(t, dialOf(rdb))
	mover.rdb.AddHook(beforeExec(func() {
		found, err := q.reopen(ctx, id)
		require.NoError(t, err)
		require.True(t, found)
	}))
	require.NoError(t, mover.archive(ctx, slice), "not an error")
	require.Equal(t, []string{id}, rdb.SMembers(ctx, q.pending).Val())
	require.Empty(t, rdb.SMembers(ctx, q.archived).Val())

	// An archived item that is reopened moves back.
	_, err := q.finish(ctx, id)
	require.NoError(t, err)
	require.NoError(t, q.archive(ctx, slice))
	require.Equal(t, []string{id}, rdb.SMembers(ctx, q.archived).Val())
	found, err := q.reopen(ctx, id)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, []string{id}, rdb.SMembers(ctx, q.pending).Val())
	require.Empty(t, rdb.SMembers(ctx, q.archived).Val())
}

// withFinished returns a queue with one finished item.
func withFinished(t *testing.T, rdb *redis.Client) (*queue, string) {
	t.Helper()
	q := newQueue(rdb, "q")
	id, err := q.add(t.Context())
	require.NoError(t, err)
	_, err = q.finish(t.Context(), id)
	require.NoError(t, err)
	return q, id
}

func TestS6_TwoMoversOfOneItem(t *testing.T) {
	rdb := oneShot(t, startRedis(t))
	ctx := t.Context()
	q, id := withFinished(t, rdb)
	mover := *q
	mover.rdb = oneShot(t, dialOf(rdb))
	mover.rdb.AddHook(beforeExec(func() { require.NoError(t, q.archive(ctx, slice)) }))
	require.NoError(t, mover.archive(ctx, slice))
	require.Equal(t, []string{id}, rdb.SMembers(ctx, q.archived).Val())
	require.Empty(t, rdb.SMembers(ctx, q.pending).Val())
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
	require.Zero(t, rdb.DBSize(ctx).Val())
}

// A script that fails in the middle, because a key has another type, leaves a
// deadline without a value, but never a value without a deadline.
func TestS6_AScriptThatFailsInItsMiddle(t *testing.T) {
	rdb := oneShot(t, startRedis(t))
	c := newCache(rdb, "c")
	ctx := t.Context()
	require.NoError(t, rdb.Set(ctx, c.keys[0], "no hash", 0).Err())
	_, err := c.write(ctx, "f", "v", time.Millisecond)
	require.ErrorContains(t, err, "WRONGTYPE")
	require.NoError(t, rdb.Del(ctx, c.keys[0]).Err())

	value, _, err := c.read(ctx, "f")
	require.NoError(t, err)
	require.Nil(t, value)
	awaitExpired(t, c, 1)
	require.NoError(t, rdb.Set(ctx, c.keys[0], "no hash", 0).Err())
	_, err = c.collect(ctx, slice)
	require.ErrorContains(t, err, "WRONGTYPE")
	require.NoError(t, rdb.Del(ctx, c.keys[0]).Err())
	n, err := c.collect(ctx, slice)
	require.NoError(t, err)
	require.Equal(t, 1, n, "the deadline is still there")
	require.Zero(t, rdb.DBSize(ctx).Val())
}

// A client does not retry an operation without an answer, because another client may
// have built on its effect.
func TestS6_AnAnswerThatIsLost(t *testing.T) {
	rdb := oneShot(t, startRedis(t))
	ctx := t.Context()
	c := newCache(rdb, "c")
	_, err := c.write(ctx, "f", "before", time.Hour) // this loads the script into Redis
	require.NoError(t, err)
	o := options("")
	lost := false
	o.Dialer = func(dialing context.Context, _, _ string) (net.Conn, error) {
		conn, err := dialOf(rdb)(dialing)
		return &deafConn{Conn: conn, lost: &lost, meddle: func() {
			_, err := c.write(ctx, "f", "theirs", time.Hour)
			require.NoError(t, err)
		}}, err
	}
	deaf := *c
	deaf.rdb = redis.NewClient(o)
	defer func() { _ = deaf.rdb.Close() }()
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
	c.sent = bytes.Contains(p, []byte("evalsha"))
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

func dialOf(rdb *redis.Client) func(ctx context.Context) (net.Conn, error) {
	o := rdb.Options()
	return func(ctx context.Context) (net.Conn, error) { return o.Dialer(ctx, "", "") }
}

// beforeExec calls f right before a transaction is sent.
type beforeExec func()

func (f beforeExec) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f beforeExec) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f beforeExec) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		if commands[0].Name() == "multi" {
			f()
		}
		return next(ctx, commands)
	}
}
