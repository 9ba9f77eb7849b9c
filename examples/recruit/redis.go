package main

// The connections to Redis. The client never retries: an operation without an answer may
// have been done, and others may have built on it, so a retry could repeat it wrongly.

import (
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
)

// newPool returns connections to the Redis at addr.
func newPool(addr string, opts ...redis.DialOption) *redis.Pool {
	const timeout = 3 * time.Second // of calls whose context has no earlier deadline
	opts = append([]redis.DialOption{
		redis.DialConnectTimeout(timeout), redis.DialReadTimeout(timeout), redis.DialWriteTimeout(timeout),
	}, opts...)
	return &redis.Pool{
		MaxIdle:     100,
		DialContext: func(ctx context.Context) (redis.Conn, error) { return redis.DialContext(ctx, "tcp", addr, opts...) },
	}
}

// do runs one command.
func do(ctx context.Context, rdb *redis.Pool, name string, args ...any) (any, error) {
	conn, err := rdb.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return redis.DoContext(conn, ctx, name, args...)
}

// command is the name of a command and its arguments.
type command []any

// transact runs commands as one transaction, and returns their answers.
func transact(ctx context.Context, rdb *redis.Pool, commands ...command) ([]any, error) {
	conn, err := rdb.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return execute(ctx, conn, commands)
}

// errChanged says that a key that the connection watches has changed.
var errChanged = errors.New("a watched key has changed")

// execute sends a transaction at once. Its error is errChanged if Redis has run nothing
// because of a watch.
func execute(ctx context.Context, conn redis.Conn, commands []command) ([]any, error) {
	err := conn.Send("MULTI")
	for _, c := range commands {
		name, _ := c[0].(string)
		err = errors.Join(err, conn.Send(name, c[1:]...))
	}
	if err != nil {
		return nil, err
	}
	answers, err := redis.Values(redis.DoContext(conn, ctx, "EXEC"))
	if errors.Is(err, redis.ErrNil) {
		return nil, errChanged
	}
	for _, answer := range answers {
		if failed, ok := answer.(redis.Error); ok {
			err = errors.Join(err, failed)
		}
	}
	return answers, err
}
