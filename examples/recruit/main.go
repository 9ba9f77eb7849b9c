// Recruit is a small web service on Redis that collects its garbage after requests,
// without a daemon, a cron job or a leader.
//
//	go run ./examples/recruit
//
// It serves the same handlers twice, on the same Redis: once with recruiting and
// once without. Clients send the same requests to both, side by side. At the end it
// prints how much garbage was left and how recruiting affected the latencies.
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
//	-rate N       requests a second, to each service (300)
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

func main() {
	stage.Main("recruit", func(ctx context.Context) error {
		s, err := parse(os.Args[1:])
		if err != nil {
			return err
		}
		return run(ctx, s, os.Stdout)
	})
}

// settings holds the flags.
type settings struct {
	redis string // "": a stand-in
	lasts time.Duration
	rate  int // requests a second, to each service
}

func parse(args []string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("recruit", flag.ExitOnError)
	flags.StringVar(&s.redis, "redis", "", "use the Redis at this `address`, in place of a stand-in in this process")
	flags.DurationVar(&s.lasts, "for", 15*time.Second, "the duration")
	flags.IntVar(&s.rate, "rate", 300, "requests a second, to each of the two services")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case s.lasts < time.Second || s.lasts > time.Hour:
		return s, fmt.Errorf("-for is %v: want 1s to 1h", s.lasts)
	case s.rate < 1 || s.rate > 100_000:
		return s, fmt.Errorf("-rate is %d: want 1 to 100000", s.rate)
	}
	return s, nil
}

// errTimeIsUp ends a run that was not interrupted.
var errTimeIsUp = errors.New("the time is up")

// run loads both services and reports the results. It removes its keys from Redis,
// even if ctx ends early. It then reports the results so far and the time that they
// took.
func run(ctx context.Context, s settings, out io.Writer) (err error) {
	st, err := openStore(ctx, s.redis)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.close(context.WithoutCancel(ctx))) }()

	with, err := newSide(st, "with")
	if err != nil {
		return err
	}
	defer with.close()
	if err := with.recruit(); err != nil {
		return err
	}
	without, err := newSide(st, "without")
	if err != nil {
		return err
	}
	defer without.close()

	if _, err := fmt.Fprintf(out, "%s; %d requests a second to each of two services, for %v\n"+
		"one collects its garbage by recruiting, the other keeps it; the report follows at the end\n\n",
		st.name, s.rate, s.lasts); err != nil {
		return err
	}
	loading, cancel := context.WithTimeoutCause(ctx, s.lasts, errTimeIsUp)
	defer cancel()
	r, err := load(loading, s.rate, with, without)
	if err != nil {
		return err
	}
	r.cut = !errors.Is(context.Cause(loading), errTimeIsUp)
	return r.print(out, with.recruiter.Jobs())
}
