package dashboard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/history"
)

// Option is a setting of a [Handler]. If an option is given twice, the later one counts.
type Option func(*options) error

// options is what the options set. Lead checks the types of functions of names.
type options struct {
	title      string
	logger     *slog.Logger
	history    *history.Ring // nil: not given
	leader     func() string
	tokens     [][sha256.Size]byte
	authorize  func(*http.Request) Access
	drain      any // func(context.Context, W) error; nil: read-only
	undrain    any // the same
	taskStates any // func(W) []TaskState[T]; nil: not known
	problems   func() []Problem
}

// set returns an option that applies f. It is an error if given, the option's argument, is
// nil.
func set(name string, given any, f func(*options)) Option {
	return func(o *options) error {
		if reflect.ValueOf(given).IsNil() {
			return invalid("%s(nil): must not be nil", name)
		}
		f(o)
		return nil
	}
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{orchestrator.ErrInvalid}, args...)...)
}

// WithTitle sets the name of the fleet, which is the heading of the pages. The default is
// "orchestrator".
func WithTitle(title string) Option {
	return func(o *options) error {
		o.title = printable(title)
		return nil
	}
}

// WithLogger sets the logger. The default, and nil, discard everything. The handler logs
// drains at Info, and answers that it could not compute or send at Warn and Debug.
func WithLogger(l *slog.Logger) Option {
	l = cmp.Or(l, slog.New(slog.DiscardHandler))
	return set("WithLogger", l, func(o *options) { o.logger = l })
}

// WithHistory sets where [Lead] records the terms, such as a ring with a file. The
// caller closes it. The default is a ring in memory with the defaults of [history.New].
func WithHistory(r *history.Ring) Option {
	return set("WithHistory", r, func(o *options) { o.history = r })
}

// WithLeader sets a function that returns the address of the process that leads, such as
// "https://host:8080/dashboard/", or "" if it is not known. Answers of a process that does
// not lead refer to it. The function must be safe for concurrent use and return within
// milliseconds.
func WithLeader(address func() string) Option {
	return set("WithLeader", address, func(o *options) { o.leader = address })
}

// WithToken sets the tokens that may do everything. A request carries one as "Bearer", or as
// the password of "Basic", so that a browser can ask for it. Each must have at least 16
// bytes. It cannot be combined with [WithAuthorize].
func WithToken(tokens ...string) Option {
	return func(o *options) error {
		if len(tokens) == 0 {
			return invalid("WithToken(): must have a token")
		}
		o.tokens = nil
		for _, token := range tokens {
			if len(token) < 16 {
				return invalid("WithToken: a token has %d bytes: must be at least 16", len(token))
			}
			o.tokens = append(o.tokens, sha256.Sum256([]byte(token)))
		}
		return nil
	}
}

// Access is what a request may do.
type Access int

// The kinds of access.
const (
	// NoAccess: the request is refused.
	NoAccess Access = iota
	// ReadAccess: the request may read.
	ReadAccess
	// WriteAccess: the request may also drain workers, if [WithDrain] is given.
	WriteAccess
)

// WithAuthorize sets a function that decides what each request may do. Without it and
// without [WithToken], only requests from the same machine are answered. The function must
// be safe for concurrent use.
func WithAuthorize(f func(*http.Request) Access) Option {
	return set("WithAuthorize", f, func(o *options) { o.authorize = f })
}

// WithDrain allows to drain workers, and sets the functions that do so. Pass those of the
// registry or the manager, if there is one: an orchestrator forgets drains with its leader.
// They must be safe for concurrent use and return an error that wraps
// [orchestrator.ErrUnknownWorker] for a worker that is not known. By default a dashboard
// changes nothing. W must be the type of the workers' names.
func WithDrain[W comparable](drain, undrain func(ctx context.Context, worker W) error) Option {
	return func(o *options) error {
		if drain == nil || undrain == nil {
			return invalid("WithDrain: a function is nil")
		}
		o.drain, o.undrain = drain, undrain
		return nil
	}
}

// TaskState is what a worker says of one of its tasks.
type TaskState[T comparable] struct {
	Task T
	// State is the text of a worker.State, such as backoff, or another word, such as queued.
	State string
	// Err is the error of the last run.
	Err string
	// Attempts counts the runs that failed in a row. From the third on they are a problem, and at once if
	// the state is failed or failing. 0 means not known, which is a problem while the state is backoff,
	// or while there is an Err without Since.
	Attempts int
	// Since is when the task entered the state, and Failing when the first of the Attempts failed; zero:
	// not known.
	Since, Failing time.Time
}

// WithTaskStates sets a function that returns what a worker says of its tasks. It must be
// safe for concurrent use and return within milliseconds. By default the states are not
// known. W and T must be the types of the workers' and the tasks' names.
func WithTaskStates[W, T comparable](f func(worker W) []TaskState[T]) Option {
	return set("WithTaskStates", f, func(o *options) { o.taskStates = f })
}

// Problem is something that needs a person and that only the program knows.
type Problem struct {
	// Kind is one or two words, such as "source failing".
	Kind string
	// Text says in sentences what is wrong. It should stay the same while only numbers change. If it is empty,
	// it is that of the dashboard for the kinds of a replica, which has the Task and the Err.
	Text, Task, Err string
	Since           time.Time // zero: not known
}

// WithProblems sets a function that returns what the program knows to be wrong, such as a source of tasks that
// does not answer. The pages, the API and "orchctl status -check" show it with what the dashboard finds itself.
// It must be safe for concurrent use and return within milliseconds.
func WithProblems(f func() []Problem) Option {
	return set("WithProblems", f, func(o *options) { o.problems = f })
}

// newOptions applies the options. The error joins all problems.
func newOptions(opts []Option) (options, error) {
	o := options{title: "orchestrator", logger: slog.New(slog.DiscardHandler)}
	var errs []error
	for _, opt := range opts {
		if opt == nil {
			errs = append(errs, invalid("an Option is nil"))
			continue
		}
		errs = append(errs, opt(&o))
	}
	if o.authorize != nil && o.tokens != nil {
		errs = append(errs, invalid("WithAuthorize and WithToken: must not be combined"))
	}
	if o.history == nil {
		var err error
		o.history, err = history.New()
		errs = append(errs, err)
	}
	return o, errors.Join(errs...)
}
