package etcd

import (
	"fmt"
	"maps"
	"time"
)

// MemberOption is an option of [NewMember]. Every [Option] is one.
type MemberOption interface {
	applyMember(*memberSettings)
}

type memberSettings struct {
	settings
	attributes map[string]string
	unassigned bool // takes no assignments from etcd
}

type memberOption func(*memberSettings)

func (f memberOption) applyMember(s *memberSettings) { f(s) }

func (f option) applyMember(s *memberSettings) { f(&s.settings) }

// WithAttributes adds attributes to the worker's membership, such as its location or
// version, for readers of the membership. This package does not use them. The map is
// copied. By default there are no attributes.
func WithAttributes(attributes map[string]string) MemberOption {
	return memberOption(func(s *memberSettings) { s.attributes = maps.Clone(attributes) })
}

// newMemberSettings applies the options. It reports all invalid arguments and
// options, joined.
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
		s.invalid("worker has no lease: use worker.WithLease")
	} else if err := checkLease(lease); err != nil {
		s.problems = append(s.problems, fmt.Errorf("worker.WithLease: %w", err))
	}
	return s, s.finish()
}
