// Recruit is a small web service on Redis that collects its garbage after requests,
// without a daemon, a cron job or a leader.
//
//	go run ./examples/recruit
//
// It serves the same handlers twice, on the same Redis: once with recruiting and
// once without. Clients send the same requests to both, side by side. It prints how
// much garbage is left, and at the end how recruiting affected the latencies.
//
// Read the files in this order:
//
//	cache.go    a hash whose fields expire, correct even if no garbage is collected
//	queue.go    a transaction that several processes may run at the same time, and
//	            that may be cut off at any point
//	service.go  the five lines for recruiting
//
//	-redis ADDR   your own Redis, in place of a stand-in in this process
//	-for D        the duration (15s)
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"
	"golang.org/x/sync/errgroup"

	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

func main() {
	addr := flag.String("redis", "", "use the Redis at this `address`, in place of a stand-in in this process")
	lasts := flag.Duration("for", 15*time.Second, "the duration")
	flag.Parse()
	stage.Main("recruit", func(ctx context.Context) error {
		switch {
		case flag.NArg() > 0:
			return fmt.Errorf("unexpected argument %q", flag.Arg(0))
		case *lasts < time.Second:
			return fmt.Errorf("-for is %v: want at least 1s", *lasts)
		}
		return run(ctx, *addr, *lasts, os.Stdout)
	})
}

// run loads both services and prints the results. It removes its keys from Redis,
// even if ctx ends early.
func run(ctx context.Context, addr string, lasts time.Duration, out io.Writer) (err error) {
	st, err := openStore(ctx, addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close(context.WithoutCancel(ctx))) }()
	var services [2]*service
	for i, name := range []string{"with", "without"} {
		if services[i], err = newService(st, name); err != nil {
			return err
		}
		defer services[i].close()
	}
	if err := services[0].recruit(); err != nil {
		return err
	}

	log := stage.NewLog(out)
	log.Say("%s; %d requests a second to each of two services, for %v", st.name, rate, lasts)
	loading, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	parts, loading := errgroup.WithContext(loading)
	all := make([]*client, clients)
	for i := range all {
		all[i] = newClient(services)
		parts.Go(func() error { return all[i].load(loading) })
	}
	parts.Go(func() error { return watch(loading, log, services) })
	if err := parts.Wait(); err != nil {
		return err
	}
	report(log, services, all)
	return nil
}

// watch prints each second how many expired fields still exist.
func watch(ctx context.Context, log *stage.Log, services [2]*service) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var left [2]int
		for i, s := range services {
			var err error
			if left[i], err = s.cache.expired(context.WithoutCancel(ctx)); err != nil {
				return err
			}
		}
		log.Say("expired fields that still exist: %3d with recruiting, %3d without", left[0], left[1])
	}
}

// report prints the recruits of each job beside the number that its rate leads to, and
// the latencies.
func report(log *stage.Log, services [2]*service, all []*client) {
	var latencies [2][]time.Duration
	for _, c := range all {
		for i := range latencies {
			latencies[i] = append(latencies[i], c.latencies[i]...)
		}
	}
	requests := len(latencies[0])
	log.Title("%d requests to each service", requests)
	for _, j := range services[0].recruiter.Jobs() {
		mean := j.Rate * float64(requests)
		log.Say("%-7s recruited %d requests (expected %.0f ± %.0f); %d failed, %d overdue",
			j.Name, j.Recruited, mean, math.Sqrt(mean*(1-j.Rate)), j.Failed, j.Overdue)
	}
	for i, s := range services {
		log.Say("latency %-7s recruiting: median %v, 99th percentile %v",
			s.name, percentile(latencies[i], 50), percentile(latencies[i], 99))
	}
}

// percentile returns the smallest latency that at least p percent of all do not
// exceed, or 0 without latencies.
func percentile(of []time.Duration, p int) time.Duration {
	if len(of) == 0 {
		return 0
	}
	of = slices.Sorted(slices.Values(of))
	return of[(len(of)*p+99)/100-1].Round(10 * time.Microsecond)
}

// store is a Redis, and the prefix of this program's keys.
type store struct {
	rdb    *redis.Pool
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
	st.rdb = newPool(addr)
	if _, err := do(ctx, st.rdb, "PING"); err != nil {
		return nil, errors.Join(fmt.Errorf("reach redis at %s: %w", addr, err), st.rdb.Close())
	}
	return st, nil
}

// close removes this program's keys and closes the connections.
func (st *store) close(ctx context.Context) error {
	defer st.end()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return errors.Join(st.clear(ctx), st.rdb.Close())
}

// clear removes this program's keys.
func (st *store) clear(ctx context.Context) error {
	for cursor := "0"; ; {
		page, err := redis.Values(do(ctx, st.rdb, "SCAN", cursor, "MATCH", "{"+st.prefix+"*", "COUNT", 1000)) // names are in braces
		if err != nil {
			return err
		}
		var keys []string
		if _, err := redis.Scan(page, &cursor, &keys); err != nil {
			return err
		}
		if len(keys) > 0 {
			if _, err := do(ctx, st.rdb, "DEL", redis.Args{}.AddFlat(keys)...); err != nil {
				return err
			}
		}
		if cursor == "0" {
			return nil
		}
	}
}
