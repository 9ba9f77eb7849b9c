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
	dialing   []grpc.DialOption // for tests, which have networks of their own
}

type memberOption func(*memberSettings)

func (f memberOption) applyMember(s *memberSettings) { f(s) }

// WithAdvertise sets the address at which the manager calls the worker, as
// host:port. It is needed where that is not the listener's: where the worker
// listens on every address, or behind something that translates them.
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

// newMemberSettings reports everything that is wrong with what a member is made
// of.
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
		s.problems = append(s.problems, fmt.Errorf("the manager: %w", err))
	}
	if err := checkName("worker", name); err != nil {
		s.problems = append(s.problems, err)
	} else {
		s.identify(party{role: roleWorker, name: name})
	}
	if lease == 0 {
		s.invalid("the worker has no lease: make it with worker.WithLease")
	}
	return s, s.finish()
}

// advertised returns the address at which a worker can be called that listens on
// own, and was told to name another where given is not empty.
func advertised(own net.Addr, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	if err := checkAddress(own.String()); err != nil {
		return "", fmt.Errorf("the listener's address: %w: say another with WithAdvertise", err)
	}
	return own.String(), nil
}
