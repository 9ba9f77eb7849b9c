package recruit

// What New and Install refuse, and what jobs end with.

import "errors"

var (
	// ErrInvalid is wrapped by what [New] and [Recruiter.Install] return for an
	// argument that is out of range. The error names the job, or the option, and
	// the value.
	ErrInvalid = errors.New("invalid")

	// ErrClosed is wrapped by what [Recruiter.Install] returns after
	// [Recruiter.Close].
	ErrClosed = errors.New("recruiter closed")

	// ErrBudget is the cause with which the context of a job ends when its budget
	// is up.
	ErrBudget = errors.New("the budget is up")

	// errGoexit is the failure of a job that left by runtime.Goexit.
	errGoexit = errors.New("left by runtime.Goexit")
)
