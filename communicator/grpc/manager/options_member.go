package manager

// The options of NewMember.

import (
	"fmt"
	"net"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
)

// MemberOption is for [NewMember]. Every [Option] is one.
type MemberOption interface {
	ApplyMember(*option.Member)
}

type memberOptionFunc func(*option.Member)

func (f memberOptionFunc) ApplyMember(s *option.Member) { f(s) }

// WithAdvertise sets the address, as host:port, at which the manager calls the
// worker. It is needed if that is not the listener's address, because the worker
// listens on every address or is behind an address translation.
//
// Default: the listener's address.
func WithAdvertise(address string) MemberOption {
	return memberOptionFunc(func(s *option.Member) {
		if err := identity.CheckAddress(address); err != nil {
			s.Reject(fmt.Errorf("WithAdvertise: %w", err))
		}
		s.Advertise = address
	})
}

// newMemberSettings returns the settings of a member, and every problem with its
// arguments.
func newMemberSettings(manager, name string, lease time.Duration, opts []MemberOption) (option.Member, error) {
	s := option.Member{Settings: peer.Defaults()}
	for _, opt := range opts {
		if opt == nil {
			s.Invalid("a MemberOption is nil")
			continue
		}
		opt.ApplyMember(&s)
	}
	if err := identity.CheckAddress(manager); err != nil {
		s.Reject(fmt.Errorf("manager: %w", err))
	}
	if err := identity.CheckName("worker", name); err != nil {
		s.Reject(err)
	} else {
		s.Identify(identity.Principal{Role: identity.RoleWorker, Name: name})
	}
	if lease == 0 {
		s.Invalid("worker has no lease: use worker.WithLease")
	}
	return s, s.Err()
}

// advertised returns the address at which a worker that listens on own can be
// called: given, unless it is empty.
func advertised(own net.Addr, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	if err := identity.CheckAddress(own.String()); err != nil {
		return "", fmt.Errorf("listener's address: %w: set another with WithAdvertise", err)
	}
	return own.String(), nil
}
