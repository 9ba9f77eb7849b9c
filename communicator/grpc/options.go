package grpc

// The options for every constructor.

import (
	"log/slog"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
)

// Option is for every constructor of this package. The same Option may be given to
// several of them. A []Option must be copied into a slice of the type that the
// constructor takes.
type Option interface {
	CommunicatorOption
	ManagerOption
	MemberOption
	apply(*peer.Settings)
}

func newSettings(opts []Option) (peer.Settings, error) {
	s := peer.Defaults()
	for _, opt := range opts {
		if opt == nil {
			s.Invalid("an Option is nil")
			continue
		}
		opt.apply(&s)
	}
	return s, s.Err()
}

type option func(*peer.Settings)

func (f option) apply(s *peer.Settings)                    { f(s) }
func (f option) applyCommunicator(s *communicatorSettings) { f(&s.Settings) }
func (f option) applyManager(s *managerSettings)           { f(&s.Settings) }
func (f option) applyMember(s *memberSettings)             { f(&s.Settings) }

// WithLogger sets the logger. The default, and nil, discard everything. Normal
// operation is logged at Debug and Info.
func WithLogger(l *slog.Logger) Option {
	return option(func(s *peer.Settings) {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		s.Logger = l
	})
}

// WithMaxMessage sets the largest message in bytes, in both directions. A worker's
// requests to its manager are limited to 256 KiB regardless. The default is 16 MiB,
// enough for a manager's worker with some 350,000 tasks whose names have 32 bytes.
// The range is from 2 MiB, enough for any content, to 1 GiB.
func WithMaxMessage(bytes int) Option {
	return option(func(s *peer.Settings) {
		if bytes < 2<<20 || bytes > 1<<30 {
			s.Invalid("WithMaxMessage(%d): must be from 2 MiB to 1 GiB", bytes)
		}
		s.MaxMessage = bytes
	})
}

// WithCredentials makes every connection use TLS with certificates at both ends. The
// default is plaintext, on loopback only.
func WithCredentials(c *Credentials) Option {
	return option(func(s *peer.Settings) {
		if c == nil {
			s.Invalid("WithCredentials: nil")
			return
		}
		s.Credentials = c.files
	})
}

// WithPlaintext allows connections without TLS that leave the machine. Any process
// that can reach a port can then command workers, and act as any of them. It is for
// networks that encrypt and authenticate by other means. By default, plaintext is
// limited to loopback.
func WithPlaintext() Option {
	return option(func(s *peer.Settings) { s.Plaintext = true })
}
