package main

// A hash whose fields expire. Redis 7.0 cannot do that by itself, so beside the
// hash there is a sorted set with the deadline of each field.
//
// # What can go wrong, and does in many a version of this
//
// Written as commands one after the other, with the time of whoever writes:
//
//  1. A writer puts the value, and is gone before it puts the deadline: a field
//     that nobody ever collects.
//  2. A reader finds the value, which expired long ago but was not collected.
//  3. A collector finds that a field has expired. A writer writes it again. The
//     collector deletes it: a live field is lost.
//  4. Two collectors find the same fields. One deletes them, a writer writes one
//     again, the other deletes that.
//  5. The clock of one is ahead of the other's: what the one has just written,
//     the other takes for expired.
//
// # What is done about it
//
// Each operation is one script. Redis runs one script at a time, from its first
// line to its last, whatever becomes of who has sent it, and takes the time by
// its own clock. So nothing comes between: against 1, 3 and 4 there are no two
// commands of which somebody could be gone, or come, in the middle. A command
// that arrives in part is not run at all. A log that Redis is started again from
// has all of a script, or nothing. Against 2, a read looks at the deadline; against
// 5, there is one clock. (A replica that takes over brings its own: deadlines are
// then off by as much as the two differ.)
//
// What is left is a script that fails in its middle, since Redis does not undo
// what it has done until then; a key of ours that is of another type would do it.
// So within a script the order is that of 1 turned round: the deadline is put
// first and taken away last. What can be left then is a deadline without a
// value, which a read takes for absent, and which is collected like any other.
//
// Two scripts in either order:
//
//	read, write       the read finds what was there before, if that has not expired
//	write, read       it finds what was written
//	collect, write    what was expired goes, what is written stays
//	write, collect    the deadline is a new one: the collector does not find the field
//	collect, read     the field is absent, which it was for the reader before
//	read, collect     likewise
//	collect, collect  the second finds others, or none
//	write, write      the last one counts, value and deadline together
//
// Who gets no answer does not know whether its script was run. To collect once more
// does no harm. To write once more may undo what another has written since, so the
// client does not (see options): the one who asked decides.
//
// Redis has to keep what it is given: where it evicts keys for want of memory, it may
// take the deadlines away and leave the values.

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// cache is the hash. Its methods may be called from any goroutine, in any number
// of processes.
type cache struct {
	rdb  *redis.Client
	keys []string // the values, the deadlines
}

// newCache returns the cache of that name. The braces put both keys into one slot
// of a cluster.
func newCache(rdb *redis.Client, name string) *cache {
	return &cache{rdb: rdb, keys: []string{"{" + name + "}:values", "{" + name + "}:deadlines"}}
}

// now is what each script begins with: the time in milliseconds.
const now = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
`

var (
	writeScript = redis.NewScript(now + `
local deadline = now + tonumber(ARGV[3])
redis.call('ZADD', KEYS[2], string.format('%.0f', deadline), ARGV[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {now, deadline}`)

	readScript = redis.NewScript(now + `
local deadline = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or 0)
if deadline <= now then return {now, deadline, false} end
return {now, deadline, redis.call('HGET', KEYS[1], ARGV[1])}`)

	collectScript = redis.NewScript(now + `
local fields = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now), 'LIMIT', 0, ARGV[1])
if #fields > 0 then
	redis.call('HDEL', KEYS[1], unpack(fields))
	redis.call('ZREM', KEYS[2], unpack(fields))
end
return #fields`)

	expiredScript = redis.NewScript(now + `
return redis.call('ZCOUNT', KEYS[2], '-inf', string.format('%.0f', now))`)
)

// stamp is when something happened by the clock of Redis, and the deadline of the
// field then, both in milliseconds since the Unix epoch.
type stamp struct{ now, deadline int64 }

// write puts a field, to expire after ttl, which is at least a millisecond.
func (c *cache) write(ctx context.Context, field, value string, ttl time.Duration) (stamp, error) {
	if ttl < time.Millisecond {
		return stamp{}, fmt.Errorf("write field %q: ttl %v: must be at least 1ms", field, ttl)
	}
	answer, err := writeScript.Run(ctx, c.rdb, c.keys, field, value, ttl.Milliseconds()).Int64Slice()
	if err != nil || len(answer) != 2 {
		return stamp{}, fmt.Errorf("write field %q: answer %v: %w", field, answer, err)
	}
	return stamp{now: answer[0], deadline: answer[1]}, nil
}

// read returns a field that has not expired; nil: there is none.
func (c *cache) read(ctx context.Context, field string) (*string, stamp, error) {
	answer, err := readScript.Run(ctx, c.rdb, c.keys, field).Slice()
	if err != nil || len(answer) != 3 {
		return nil, stamp{}, fmt.Errorf("read field %q: answer %v: %w", field, answer, err)
	}
	at, ok1 := answer[0].(int64)
	deadline, ok2 := answer[1].(int64)
	if !ok1 || !ok2 {
		return nil, stamp{}, fmt.Errorf("read field %q: answer %v: want two numbers", field, answer)
	}
	if value, ok := answer[2].(string); ok {
		return &value, stamp{at, deadline}, nil
	}
	return nil, stamp{at, deadline}, nil
}

// collect takes away at most n expired fields, and returns how many it did.
func (c *cache) collect(ctx context.Context, n int) (int, error) {
	collected, err := collectScript.Run(ctx, c.rdb, c.keys, n).Int()
	if err != nil {
		return 0, fmt.Errorf("collect expired fields: %w", err)
	}
	return collected, nil
}

// expired counts the fields that have expired and are still there.
func (c *cache) expired(ctx context.Context) (int, error) {
	n, err := expiredScript.Run(ctx, c.rdb, c.keys).Int()
	if err != nil {
		return 0, fmt.Errorf("count expired fields: %w", err)
	}
	return n, nil
}
