package grpc

// The options for every constructor.

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/f8949c05/orchestrator"
)

// Option is for every constructor of this package. The same Option may be given to
// several of them. A []Option must be copied into a slice of the type that the
// constructor takes.
type Option interface {
	CommunicatorOption
	ManagerOption
	MemberOption
	apply(*settings)
}

// settings holds the options for every constructor.
type settings struct {
	logger      *slog.Logger
	credentials *Credentials // nil: plaintext
	plaintext   bool         // allowed off loopback
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

// finish returns all problems with the options.
func (s *settings) finish() error { return errors.Join(s.problems...) }

func (s *settings) invalid(format string, args ...any) {
	s.problems = append(s.problems, fmt.Errorf("%w: "+format, append([]any{orchestrator.ErrInvalid}, args...)...))
}

// absent reports whether an argument is nil, or an interface around a nil pointer,
// such as the result of a constructor whose error was ignored.
func absent(v any) bool {
	if v == nil {
		return true
	}
	value := reflect.ValueOf(v)
	return value.Kind() == reflect.Pointer && value.IsNil()
}

// identify records a problem if the credentials do not suit the identity under which
// this end serves and calls.
func (s *settings) identify(as principal) {
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

// WithLogger sets the logger. The default, and nil, discard everything. Normal
// operation is logged at Debug and Info.
func WithLogger(l *slog.Logger) Option {
	return option(func(s *settings) {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		s.logger = l
	})
}

// WithMaxMessage sets the largest message in bytes, in both directions. A worker's
// requests to its manager are limited to 256 KiB regardless. The default is 16 MiB,
// enough for a manager's worker with some 350,000 tasks whose names have 32 bytes.
// The range is from 2 MiB, enough for any content, to 1 GiB.
func WithMaxMessage(bytes int) Option {
	return option(func(s *settings) {
		if bytes < 2<<20 || bytes > 1<<30 {
			s.invalid("WithMaxMessage(%d): must be from 2 MiB to 1 GiB", bytes)
		}
		s.maxMessage = bytes
	})
}

// WithCredentials makes every connection use TLS with certificates at both ends. The
// default is plaintext, on loopback only.
func WithCredentials(c *Credentials) Option {
	return option(func(s *settings) {
		if c == nil {
			s.invalid("WithCredentials: nil")
		}
		s.credentials = c
	})
}

// WithPlaintext allows connections without TLS that leave the machine. Any process
// that can reach a port can then command workers, and act as any of them. It is for
// networks that encrypt and authenticate by other means. By default, plaintext is
// limited to loopback.
func WithPlaintext() Option {
	return option(func(s *settings) { s.plaintext = true })
}
