package main

// A hash whose fields expire. Redis 7.0 has no such feature, so a sorted set beside
// the hash holds the deadline of each field.
//
// # Common errors
//
// The following goes wrong if each operation is a sequence of commands and uses the
// client's clock:
//
//  1. A writer stores the value, and crashes before it stores the deadline. The
//     field is never collected.
//  2. A reader finds a value that has expired but was not collected.
//  3. A collector finds that a field has expired. A writer writes the field again.
//     The collector deletes it: a live field is lost.
//  4. Two collectors find the same fields. One deletes them, a writer writes one of
//     them again, and the other collector deletes that.
//  5. The clock of one client is ahead of another's. The first takes a field for
//     expired that the other has just written.
//
// # Solution
//
// Each operation is one script. Redis runs one script at a time from beginning to
// end, even if its sender has crashed, and the script uses the clock of Redis. This
// solves 1, 3 and 4, because no client can crash or interfere between two commands.
// A command that arrives in part is not run. After a restart, the log of Redis
// contains all of a script or nothing. Against 2, a read checks the deadline.
// Against 5, there is only one clock. (A replica that takes over has another clock,
// so deadlines are off by the difference.)
//
// A script may still fail in the middle, for example if one of its keys has another
// type, and Redis does not undo its first half. So a script stores the deadline
// first and deletes it last, the reverse of 1. A failure can then leave a deadline
// without a value. Reads treat such a field as absent, and it is collected like any
// other.
//
// Two scripts in either order:
//
//	read, write       the read returns the former value, if it has not expired
//	write, read       the read returns the written value
//	collect, write    the expired value is deleted, the written one stays
//	write, collect    the deadline is new, so the field is not collected
//	collect, read     the field is absent, as it was for readers before
//	read, collect     likewise
//	collect, collect  the second deletes other fields, or none
//	write, write      the last value and deadline count
//
// A client without an answer does not know whether its script was run. Repeating a
// collect does no harm. Repeating a write may overwrite a later value, so the client
// does not retry; its caller decides.
//
// Redis must keep all keys: if it evicts keys to free memory, it may delete the
// deadlines and keep the values.

import (
	"context"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
)

// cache is the hash. Its methods may be called from any goroutine, in any number of
// processes.
type cache struct {
	rdb  *redis.Pool
	keys []string // the values, the deadlines
}

// newCache returns the cache of that name. The braces place both keys in one slot of
// a cluster.
func newCache(rdb *redis.Pool, name string) *cache {
	return &cache{rdb: rdb, keys: []string{"{" + name + "}:values", "{" + name + "}:deadlines"}}
}

// now is the beginning of each script: the time in milliseconds.
const now = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
`

var (
	writeScript = redis.NewScript(2, now+`
local deadline = now + tonumber(ARGV[3])
redis.call('ZADD', KEYS[2], string.format('%.0f', deadline), ARGV[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {now, deadline}`)

	readScript = redis.NewScript(2, now+`
local deadline = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or 0)
if deadline <= now then return {now, deadline, false} end
return {now, deadline, redis.call('HGET', KEYS[1], ARGV[1])}`)

	collectScript = redis.NewScript(2, now+`
local fields = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now), 'LIMIT', 0, ARGV[1])
if #fields > 0 then
	redis.call('HDEL', KEYS[1], unpack(fields))
	redis.call('ZREM', KEYS[2], unpack(fields))
end
return #fields`)

	expiredScript = redis.NewScript(2, now+`
return redis.call('ZCOUNT', KEYS[2], '-inf', string.format('%.0f', now))`)
)

// run runs a script with the keys of the cache.
func (c *cache) run(ctx context.Context, script *redis.Script, args ...any) (any, error) {
	conn, err := c.rdb.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return script.DoContext(ctx, conn, append([]any{c.keys[0], c.keys[1]}, args...)...)
}

// stamp holds the time of an operation by the clock of Redis, and the field's
// deadline then, both in milliseconds since the Unix epoch.
type stamp struct{ now, deadline int64 }

// write stores a field that expires after ttl, which is at least a millisecond.
func (c *cache) write(ctx context.Context, field, value string, ttl time.Duration) (stamp, error) {
	if ttl < time.Millisecond {
		return stamp{}, fmt.Errorf("write field %q: ttl %v: must be at least 1ms", field, ttl)
	}
	answer, err := redis.Int64s(c.run(ctx, writeScript, field, value, ttl.Milliseconds()))
	if err != nil || len(answer) != 2 {
		return stamp{}, fmt.Errorf("write field %q: answer %v: %w", field, answer, err)
	}
	return stamp{now: answer[0], deadline: answer[1]}, nil
}

// read returns a field that has not expired, or nil if the field is absent.
func (c *cache) read(ctx context.Context, field string) (*string, stamp, error) {
	answer, err := redis.Values(c.run(ctx, readScript, field))
	if err != nil || len(answer) != 3 {
		return nil, stamp{}, fmt.Errorf("read field %q: answer %v: %w", field, answer, err)
	}
	at, ok1 := answer[0].(int64)
	deadline, ok2 := answer[1].(int64)
	if !ok1 || !ok2 {
		return nil, stamp{}, fmt.Errorf("read field %q: answer %v: want two numbers", field, answer)
	}
	if value, err := redis.String(answer[2], nil); err == nil {
		return &value, stamp{at, deadline}, nil
	}
	return nil, stamp{at, deadline}, nil
}

// collect deletes at most n expired fields, and returns their number.
func (c *cache) collect(ctx context.Context, n int) (int, error) {
	collected, err := redis.Int(c.run(ctx, collectScript, n))
	if err != nil {
		return 0, fmt.Errorf("collect expired fields: %w", err)
	}
	return collected, nil
}

// expired counts the fields that have expired and still exist.
func (c *cache) expired(ctx context.Context) (int, error) {
	n, err := redis.Int(c.run(ctx, expiredScript))
	if err != nil {
		return 0, fmt.Errorf("count expired fields: %w", err)
	}
	return n, nil
}
