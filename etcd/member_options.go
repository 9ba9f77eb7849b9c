package etcd

// The options of NewMember.

import (
	"fmt"
	"maps"
	"time"
)

// MemberOption is for [NewMember]. Every [Option] is one.
type MemberOption interface {
	applyMember(*memberSettings)
}

type memberSettings struct {
	settings
	attributes map[string]string
	unassigned bool // it takes no assignments
}

type memberOption func(*memberSettings)

func (f memberOption) applyMember(s *memberSettings) { f(s) }

func (f option) applyMember(s *memberSettings) { f(&s.settings) }

// WithAttributes says something about the worker to whoever reads the
// membership: where it runs, which version it is. Nothing in this package goes by
// it. The map is copied. Default: nothing is said.
func WithAttributes(attributes map[string]string) MemberOption {
	return memberOption(func(s *memberSettings) { s.attributes = maps.Clone(attributes) })
}

// newMemberSettings reports everything that is wrong with what a member is made
// of.
func newMemberSettings(name string, lease time.Duration, opts []MemberOption) (memberSettings, error) {
	s := memberSettings{settings: defaults()}
	for _, opt := range opts {
		if opt == nil {
			s.invalid("a MemberOption is nil")
			continue
		}
		opt.applyMember(&s)
	}
	if err := checkName("worker", name); err != nil {
		s.problems = append(s.problems, err)
	}
	if lease == 0 {
		s.invalid("the worker has no lease: make it with worker.WithLease")
	} else if err := checkLease(lease); err != nil {
		s.problems = append(s.problems, fmt.Errorf("worker.WithLease: %w", err))
	}
	return s, s.finish()
}
