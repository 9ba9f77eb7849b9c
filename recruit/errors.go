package recruit

// The errors of New, of Install and of jobs.

import "errors"

var (
	// ErrInvalid is wrapped by the errors of [New] and [Recruiter.Install] for an
	// invalid argument. The error names the job or the option, and the value.
	ErrInvalid = errors.New("invalid")

	// ErrClosed is wrapped by the error of [Recruiter.Install] after
	// [Recruiter.Close].
	ErrClosed = errors.New("recruiter closed")

	// ErrBudget is the cause with which the context of a job ends shortly before its
	// budget is used up.
	ErrBudget = errors.New("budget used up")

	// errGoexit is the failure of a job that called runtime.Goexit.
	errGoexit = errors.New("job called runtime.Goexit")
)
