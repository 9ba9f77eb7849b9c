package grpc

// The options of NewMember.

import (
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
)

// MemberOption is for [NewMember]. Every [Option] is one.
type MemberOption interface {
	applyMember(*memberSettings)
}

type memberSettings struct {
	settings
	advertise string            // empty: the listener's address
	dialing   []grpc.DialOption // for tests with their own networks
}

type memberOption func(*memberSettings)

func (f memberOption) applyMember(s *memberSettings) { f(s) }

// WithAdvertise sets the address, as host:port, at which the manager calls the
// worker. It is needed if that is not the listener's address, because the worker
// listens on every address or is behind an address translation.
//
// Default: the listener's address.
func WithAdvertise(address string) MemberOption {
	return memberOption(func(s *memberSettings) {
		if err := checkAddress(address); err != nil {
			s.problems = append(s.problems, fmt.Errorf("WithAdvertise: %w", err))
		}
		s.advertise = address
	})
}

// newMemberSettings returns the settings of a member, and every problem with its
// arguments.
func newMemberSettings(manager, name string, lease time.Duration, opts []MemberOption) (memberSettings, error) {
	s := memberSettings{settings: defaults()}
	for _, opt := range opts {
		if opt == nil {
			s.invalid("a MemberOption is nil")
			continue
		}
		opt.applyMember(&s)
	}
	if err := checkAddress(manager); err != nil {
		s.problems = append(s.problems, fmt.Errorf("manager: %w", err))
	}
	if err := checkName("worker", name); err != nil {
		s.problems = append(s.problems, err)
	} else {
		s.identify(principal{role: roleWorker, name: name})
	}
	if lease == 0 {
		s.invalid("worker has no lease: use worker.WithLease")
	}
	return s, s.finish()
}

// advertised returns the address at which a worker that listens on own can be
// called: given, unless it is empty.
func advertised(own net.Addr, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	if err := checkAddress(own.String()); err != nil {
		return "", fmt.Errorf("listener's address: %w: set another with WithAdvertise", err)
	}
	return own.String(), nil
}
