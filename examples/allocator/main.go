// Allocator spreads work over a fleet of equal processes. Each process may lead, and
// each runs a share of the work. No process is indispensable.
//
//	go run ./examples/allocator                              # with an embedded etcd
//	go run ./examples/allocator -etcd http://127.0.0.1:2379  # another process on the same etcd
//
// Work is added, changed and removed through the HTTP API of any process. README.md
// has a walk-through.
//
// Read node.go for the replica and its tasks, and cluster.go for what the API says of the fleet.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	s, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, s, os.Stdout, os.Stderr)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "allocator:", err)
		os.Exit(1)
	}
}

// tokenEnv is the environment variable with the API's bearer token. A flag would
// show the token in the process list.
const tokenEnv = "ALLOCATOR_TOKEN"

// settings holds the parsed flags.
type settings struct {
	listen    string
	etcd      []string // nil: embedded
	access    access
	embed     string
	data      string
	name      string
	prefix    string
	token     string
	hosts     []string // accepted in Host without a token
	lease     time.Duration
	interval  time.Duration
	placement orchestrator.WorkerSettings
}

func parse(args []string) (settings, error) {
	var s settings
	f := flag.NewFlagSet("allocator", flag.ContinueOnError)
	f.StringVar(&s.listen, "listen", "127.0.0.1:0", "the `address` of the API; with port 0 the kernel chooses a port, which is printed")
	endpoints := f.String("etcd", "", "the etcd to join: `URLs`, separated by commas (default: an embedded one)")
	s.access.flags(f)
	f.StringVar(&s.embed, "embed", "127.0.0.1:2379", "the `address` of the embedded etcd")
	f.StringVar(&s.data, "data", "", "the data `folder` of the embedded etcd (default: in the user's cache)")
	f.StringVar(&s.name, "name", "", "the `name` of the worker (default: host and process id)")
	f.StringVar(&s.prefix, "prefix", "/work/", "the `prefix` of all keys in etcd")
	f.DurationVar(&s.lease, "lease", 10*time.Second, "how long after a crash the process's work starts elsewhere")
	f.DurationVar(&s.interval, "interval", time.Second, "the interval between terms without changes")
	f.StringVar(&s.placement.Zone, "zone", "", "the `zone` of the worker: what fails together")
	f.Func("labels", "the `labels` of the worker, separated by commas, such as gpu,disk=ssd", func(list string) error {
		s.placement.Labels = strings.Split(list, ",")
		return s.placement.Check()
	})
	f.IntVar(&s.placement.Share, "share", 1, "the `part` of the work for this worker, relative to the others")
	f.IntVar(&s.placement.MaxTasks, "max-tasks", 0, "the `most` items that the worker runs; 0: no limit")
	hosts := f.String("hosts", "", "`names`, separated by commas, that the API accepts as Host without a token, besides loopback")
	tokenFile := f.String("token-file", "", "the `file` with the API's bearer token (default: $"+tokenEnv+", or none)")
	if err := f.Parse(args); err != nil {
		return settings{}, err
	}
	if f.NArg() > 0 {
		return settings{}, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err := s.choose(*endpoints, f); err != nil {
		return settings{}, err
	}
	var err error
	if s.hosts, err = hostNames(*hosts); err != nil {
		return settings{}, err
	}
	return s, s.complete(*tokenFile)
}

// choose selects the etcd to join, or the embedded one.
func (s *settings) choose(endpoints string, f *flag.FlagSet) error {
	if endpoints == "" {
		if s.access != (access{}) {
			return errors.New("-etcd-… flags: -etcd is missing")
		}
		return nil
	}
	s.etcd = strings.Split(endpoints, ",")
	for _, endpoint := range s.etcd {
		if _, _, err := net.SplitHostPort(hostOf(endpoint)); err != nil {
			return fmt.Errorf("-etcd %s: must be a URL such as http://127.0.0.1:2379: %w", endpoint, err)
		}
	}
	var err error
	f.Visit(func(given *flag.Flag) {
		if given.Name == "embed" || given.Name == "data" {
			err = fmt.Errorf("-%s configures the embedded etcd, but -etcd joins another", given.Name)
		}
	})
	return err
}

// hostNames returns the names of a comma-separated list in lower case.
func hostNames(list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	names := strings.Split(strings.ToLower(list), ",")
	for _, name := range names {
		_, notIP := netip.ParseAddr(name)
		if name == "" || notIP != nil && strings.ContainsAny(name, ":/*[] ") {
			return nil, fmt.Errorf("-hosts: %q is not a name or IP address without a port", name)
		}
	}
	return names, nil
}

// complete validates the settings and fills in defaults.
func (s *settings) complete(tokenFile string) error {
	if err := s.placement.Check(); err != nil {
		return fmt.Errorf("-zone, -labels, -share or -max-tasks: %w", err)
	}
	if s.interval <= 0 {
		return fmt.Errorf("-interval %v: must be more than 0", s.interval)
	}
	if s.lease < replica.MinLease || s.lease > replica.MaxLease {
		return fmt.Errorf("-lease %v: must be from %v to %v", s.lease, replica.MinLease, replica.MaxLease)
	}
	if s.name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("-name: %w", err)
		}
		s.name = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	if s.data == "" && s.etcd == nil {
		cache, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("-data: %w", err)
		}
		s.data = filepath.Join(cache, "orchestrator-allocator")
	}
	var err error
	s.token, err = secret("-token-file", tokenFile, tokenEnv)
	return err
}
