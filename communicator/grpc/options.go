package grpc

// The options of NewCommunicator and NewServer. Those of package manager include Option.

import (
	"log/slog"
	"slices"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
)

// Option is for every constructor of this package and of package manager. The same
// Option may be given to several of them; [WithOptions] passes a []Option on.
type Option interface {
	CommunicatorOption
	ServerOption
	ApplyManager(*option.Manager)
	ApplyMember(*option.Member)
	apply(*peer.Settings)
}

// CommunicatorOption is for [NewCommunicator]. Every [Option] is one.
type CommunicatorOption interface {
	ApplyCommunicator(*option.Communicator)
}

// ServerOption is for [NewServer]. Every [Option] is one.
type ServerOption interface {
	ApplyServer(*option.Server)
}

type optionFunc func(*peer.Settings)

func (f optionFunc) ApplyCommunicator(s *option.Communicator) { f(&s.Settings) }
func (f optionFunc) ApplyServer(s *option.Server)             { f(&s.Settings) }
func (f optionFunc) ApplyManager(s *option.Manager)           { f(&s.Settings) }
func (f optionFunc) ApplyMember(s *option.Member)             { f(&s.Settings) }

func (f optionFunc) apply(s *peer.Settings) { f(s) }

type communicatorOptionFunc func(*option.Communicator)

func (f communicatorOptionFunc) ApplyCommunicator(s *option.Communicator) { f(s) }

// WithOptions returns an Option that applies opts in their order. Use it to give the same
// slice of Options to several constructors, which also take options of their own.
func WithOptions(opts ...Option) Option {
	opts = slices.Clone(opts)
	return optionFunc(func(s *peer.Settings) {
		option.Apply(s, opts, func(o Option) { o.apply(s) })
	})
}

// WithLogger sets the logger. The default, and nil, discard everything. Normal
// operation is logged at Debug and Info.
func WithLogger(l *slog.Logger) Option {
	return optionFunc(func(s *peer.Settings) {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		s.Logger = l
	})
}

// WithMaxMessage sets the largest message in bytes, in both directions. A worker's
// requests to its manager are limited to 256 KiB regardless. The default is 16 MiB. The
// range is from 2 MiB, enough for any content, to 1 GiB.
//
// A worker's report that is longer comes in pages. A worker rejects a task that would make it
// longer than seven messages. The default is enough for 1,800,000 tasks whose names have 16
// bytes, or for 120,000 whose names have 900.
func WithMaxMessage(bytes int) Option {
	return optionFunc(func(s *peer.Settings) {
		if bytes < 2<<20 || bytes > 1<<30 {
			s.Invalid("WithMaxMessage(%d): must be from 2 MiB to 1 GiB", bytes)
		}
		s.MaxMessage = bytes
	})
}

// WithCredentials makes every connection use TLS with certificates at both ends. The
// default is plaintext, on loopback only.
func WithCredentials(c *Credentials) Option {
	return optionFunc(func(s *peer.Settings) {
		if c == nil || c.files == nil {
			s.Invalid("WithCredentials: must be from LoadCredentials")
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
	return optionFunc(func(s *peer.Settings) { s.Plaintext = true })
}

// Contents provides the contents of tasks.
//
// # Concurrency
//
// Content is called from many goroutines at the same time.
//
// # Ownership
//
// Neither side changes the bytes.
//
// # Blocking
//
// Content is called for each task of each List, and must answer from memory.
type Contents interface {
	// Content returns the content of a task and its version. The version is higher
	// than that of every earlier content of the task, including those from before it
	// was deleted and put again. ok is false for a task that is no longer expected;
	// such a task is not started.
	Content(task string) (content []byte, version int64, ok bool)
}

// RevisedContents is a [Contents] that counts its changes. If the revision has not
// changed since a List that left no task without its newest content, the next List of an
// unchanged worker looks no task up.
type RevisedContents interface {
	Contents
	// Revision returns a number that begins at 1 and rises with each new content of any
	// task. It must answer from memory.
	Revision() int64
}

// WithContents makes every task start with its content. If a worker lists a task
// with an older content, the same List gives it the newer one. By default tasks have
// no content.
func WithContents(c Contents) CommunicatorOption {
	return communicatorOptionFunc(func(s *option.Communicator) {
		if c == nil {
			s.Invalid("WithContents: nil")
		}
		s.Contents = c
	})
}

func newCommunicatorSettings(opts []CommunicatorOption) (option.Communicator, error) {
	s := option.Communicator{Settings: peer.Defaults()}
	option.Apply(&s.Settings, opts, func(o CommunicatorOption) { o.ApplyCommunicator(&s) })
	return s, s.Err()
}

func newServerSettings(opts []ServerOption) option.Server {
	s := option.Server{Settings: peer.Defaults()}
	option.Apply(&s.Settings, opts, func(o ServerOption) { o.ApplyServer(&s) })
	return s
}
