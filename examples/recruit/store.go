package main

// The Redis: one that is given, or a stand-in in this process.

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// store is a Redis, and the part of its keys that is ours.
type store struct {
	rdb    *redis.Client
	name   string
	prefix string // of every name
	end    func() // of the stand-in
}

// openStore opens the Redis at addr; "": a stand-in. Names begin with a prefix of
// its own, so that on somebody's Redis nothing else is touched.
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
		// Without this the client ignores the deadline of a context, and a recruit
		// would be left behind whenever Redis is slow.
		ContextTimeoutEnabled: true,
		// What has no answer may have been done, and somebody may have gone on from
		// there: a client that tries again by itself would do it over.
		MaxRetries: -1,
	}
}

// close takes away every key of ours.
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
