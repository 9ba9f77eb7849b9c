// Allocator spreads work over a fleet of equal processes: each may lead, each
// does its share, none of them matters.
//
//	go run ./examples/allocator                              # on an etcd of its own
//	go run ./examples/allocator -etcd http://127.0.0.1:2379  # one more, on the same
//
// Work is added, changed and removed through HTTP, at any of them. README.md
// walks through it.
//
// The lessons: leader.go, how a process leads while it is elected; worker.go, how
// it runs tasks and fences itself; node.go, how both are put together and how to
// leave so that nobody notices.
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, stop, s, os.Stdout, os.Stderr)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "allocator:", err)
		os.Exit(1)
	}
}

// tokenEnv is where the API's bearer token is looked for, so that it does not
// show in the list of processes.
const tokenEnv = "ALLOCATOR_TOKEN"

// settings is what the user has asked for.
type settings struct {
	listen   string
	etcd     []string // nil: one of its own
	access   access
	embed    string
	data     string
	name     string
	prefix   string
	token    string
	hosts    []string // by which the API may be called without a token
	lease    time.Duration
	interval time.Duration
}

func parse(args []string) (settings, error) {
	var s settings
	f := flag.NewFlagSet("allocator", flag.ContinueOnError)
	f.StringVar(&s.listen, "listen", "127.0.0.1:0", "where to serve the API; port 0 is chosen by the kernel, and printed")
	endpoints := f.String("etcd", "", "the etcd to join: `URLs`, separated by commas (default: one of its own)")
	s.access.flags(f)
	f.StringVar(&s.embed, "embed", "127.0.0.1:2379", "where an etcd of its own listens")
	f.StringVar(&s.data, "data", "", "the `folder` of an etcd of its own (default: in the user's cache)")
	f.StringVar(&s.name, "name", "", "the name among the workers, no two alike (default: host-process)")
	f.StringVar(&s.prefix, "prefix", "/work/", "what all keys in etcd begin with")
	f.DurationVar(&s.lease, "lease", 10*time.Second, "how long after its end a process is missed; whole seconds")
	f.DurationVar(&s.interval, "interval", time.Second, "how often the leader looks, besides whenever something changes")
	hosts := f.String("hosts", "", "the `names`, separated by commas, by which the API may be called without a token, besides localhost")
	tokenFile := f.String("token-file", "", "a `file` with the API's bearer token (default: $"+tokenEnv+", or none)")
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

// choose takes in which etcd it is to be: one to join, or one of its own.
func (s *settings) choose(endpoints string, f *flag.FlagSet) error {
	if endpoints == "" {
		if s.access != (access{}) {
			return errors.New("-etcd-…: these say how to join an etcd, and -etcd does not say which")
		}
		return nil
	}
	s.etcd = strings.Split(endpoints, ",")
	for _, endpoint := range s.etcd {
		if _, _, err := net.SplitHostPort(hostOf(endpoint)); err != nil {
			return fmt.Errorf("-etcd %s: want a URL such as http://127.0.0.1:2379: %w", endpoint, err)
		}
	}
	var err error
	f.Visit(func(given *flag.Flag) {
		if given.Name == "embed" || given.Name == "data" {
			err = fmt.Errorf("-%s is for an etcd of its own, and -etcd joins another", given.Name)
		}
	})
	return err
}

// hostNames returns the names in a list, as the API compares them.
func hostNames(list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	names := strings.Split(strings.ToLower(list), ",")
	for _, name := range names {
		_, notIP := netip.ParseAddr(name)
		if name == "" || notIP != nil && strings.ContainsAny(name, ":/*[] ") {
			return nil, fmt.Errorf("-hosts: %q is not a name or an IP address, without a port", name)
		}
	}
	return names, nil
}

// complete fills in what nobody has said.
func (s *settings) complete(tokenFile string) error {
	if s.interval <= 0 {
		return fmt.Errorf("-interval %v: must be more than 0", s.interval)
	}
	if s.lease < 2*time.Second || s.lease%time.Second != 0 {
		return fmt.Errorf("-lease %v: must be whole seconds, and 2s at least", s.lease)
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
	s.token = os.Getenv(tokenEnv)
	if tokenFile != "" {
		text, err := os.ReadFile(tokenFile)
		if err != nil {
			return fmt.Errorf("-token-file: %w", err)
		}
		if s.token = strings.TrimSpace(string(text)); s.token == "" {
			return fmt.Errorf("-token-file: %s is empty", tokenFile)
		}
	}
	return nil
}
