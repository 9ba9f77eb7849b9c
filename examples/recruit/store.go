package main

// The Redis: the user's own, or a stand-in in this process.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// store is a Redis, and the prefix of this program's keys.
type store struct {
	rdb    *redis.Client
	name   string
	prefix string // of every name
	end    func() // ends the stand-in
}

// openStore opens the Redis at addr, or a stand-in if addr is empty. All keys have a
// unique prefix, so no other keys of the user's Redis are touched.
func openStore(ctx context.Context, addr string) (*store, error) {
	st := &store{name: "redis at " + addr, prefix: "recruit-" + rand.Text() + ":", end: func() {}}
	if addr == "" {
		standIn, err := miniredis.Run()
		if err != nil {
			return nil, fmt.Errorf("start the stand-in for Redis: %w", err)
		}
		st.name, st.end, addr = "a stand-in for Redis in this process", standIn.Close, standIn.Addr()
	}
	st.rdb = redis.NewClient(options(addr))
	if err := st.rdb.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("reach redis at %s: %w", addr, err), st.rdb.Close())
	}
	return st, nil
}

func options(addr string) *redis.Options {
	return &redis.Options{
		Addr: addr,
		// Without this the client ignores the deadline of a context, and recruits
		// would be abandoned whenever Redis is slow.
		ContextTimeoutEnabled: true,
		// An operation without an answer may have been done, and others may have
		// built on it, so a retry by the client could repeat it wrongly.
		MaxRetries: -1,
	}
}

// close removes this program's keys and closes the connection.
func (st *store) close(ctx context.Context) error {
	defer st.end()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var err error
	keys := st.rdb.Scan(ctx, 0, "{"+st.prefix+"*", 1000).Iterator() // names are in braces
	for keys.Next(ctx) && err == nil {
		err = st.rdb.Del(ctx, keys.Val()).Err()
	}
	return errors.Join(err, keys.Err(), st.rdb.Close())
}
