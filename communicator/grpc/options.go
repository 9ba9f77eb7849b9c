package grpc

// The options that are for every constructor.

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/f8949c05/orchestrator"
)

// Option is for every constructor of this package. One may be given to several of
// them, each by itself; a slice has to be copied into one of what the constructor
// takes.
type Option interface {
	CommunicatorOption
	ManagerOption
	MemberOption
	apply(*settings)
}

// settings is what the options add up to that are for every constructor.
type settings struct {
	logger      *slog.Logger
	credentials *Credentials // nil: plaintext
	plaintext   bool         // also off loopback
	maxMessage  int          // bytes
	problems    []error
}

func newSettings(opts []Option) (settings, error) {
	s := defaults()
	for _, opt := range opts {
		if opt == nil {
			s.invalid("an Option is nil")
			continue
		}
		opt.apply(&s)
	}
	return s, s.finish()
}

func defaults() settings {
	return settings{logger: slog.New(slog.DiscardHandler), maxMessage: 16 << 20}
}

// finish returns all that is wrong with the options.
func (s *settings) finish() error { return errors.Join(s.problems...) }

func (s *settings) invalid(format string, args ...any) {
	s.problems = append(s.problems, fmt.Errorf("%w: "+format, append([]any{orchestrator.ErrInvalid}, args...)...))
}

// absent reports whether an argument is nil, or an interface around a nil pointer, as
// what a constructor returns whose error was not looked at.
func absent(v any) bool {
	if v == nil {
		return true
	}
	value := reflect.ValueOf(v)
	return value.Kind() == reflect.Pointer && value.IsNil()
}

// identify says as whom this end serves and calls.
func (s *settings) identify(as party) {
	if s.credentials == nil {
		return
	}
	if err := s.credentials.suits(as); err != nil {
		s.problems = append(s.problems, err)
	}
}

type option func(*settings)

func (f option) apply(s *settings)                         { f(s) }
func (f option) applyCommunicator(s *communicatorSettings) { f(&s.settings) }
func (f option) applyManager(s *managerSettings)           { f(&s.settings) }
func (f option) applyMember(s *memberSettings)             { f(&s.settings) }

// WithLogger sets where to log. The default, and nil, discard everything. What
// goes as it should is logged at Debug and Info.
func WithLogger(l *slog.Logger) Option {
	return option(func(s *settings) {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		s.logger = l
	})
}

// WithMaxMessage sets how many bytes a message may have, in both directions; those
// with which workers call their manager have at most 256 KiB whatever it says. The
// default is 16 MiB, which is room for a worker with some 350,000 tasks of a manager's
// whose names have 32 bytes; from 2 MiB, which is room for any content, to 1 GiB.
func WithMaxMessage(bytes int) Option {
	return option(func(s *settings) {
		if bytes < 2<<20 || bytes > 1<<30 {
			s.invalid("WithMaxMessage(%d): must be from 2 MiB to 1 GiB", bytes)
		}
		s.maxMessage = bytes
	})
}

// WithCredentials has every connection be made with TLS, and both of its ends
// show a certificate. The default is plaintext, on loopback only.
func WithCredentials(c *Credentials) Option {
	return option(func(s *settings) {
		if c == nil {
			s.invalid("WithCredentials: nil")
		}
		s.credentials = c
	})
}

// WithPlaintext allows connections without TLS that leave the machine: whoever
// can reach a port may then command workers, and speak for any of them. It is
// for networks that encrypt and authenticate by themselves. The default is that
// plaintext is for loopback only.
func WithPlaintext() Option {
	return option(func(s *settings) { s.plaintext = true })
}
