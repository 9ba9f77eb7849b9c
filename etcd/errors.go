package etcd

// What the methods of this package fail with. Each is wrapped with the names
// involved.

import (
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator"
)

var (
	// ErrUnreachable says that no endpoint answered in time, or only with errors that
	// may pass. The text names them, and says why where that is known: the connection
	// was refused, a certificate is not trusted or missing, only one end speaks TLS.
	ErrUnreachable = errors.New("etcd does not answer")

	// ErrForeignPrefix says that the prefix holds what this package has not
	// written, or what another version of it has.
	ErrForeignPrefix = errors.New("the prefix is used by something else")

	// ErrExists says that there is a task of this name.
	ErrExists = errors.New("there is a task of this name")

	// ErrNotFound says that there is no task of this name.
	ErrNotFound = errors.New("no task of this name")

	// ErrChanged reports that a task is no longer as it was read.
	ErrChanged = errors.New("the task has changed")

	// ErrTooLarge says that a content is larger than [MaxContent], or than an etcd
	// takes that was given a lower --max-request-bytes than its default.
	ErrTooLarge = errors.New("content too large")

	// ErrLeaseTooShort says that etcd grants no lease as short as the one asked
	// for. The text says what it grants.
	ErrLeaseTooShort = errors.New("etcd grants no lease that short")

	// ErrNameTaken says that another worker of this name is a member.
	ErrNameTaken = errors.New("the name is taken")

	// ErrClusterChanged says that the endpoints lead to another etcd cluster than
	// before, or to an older state of it, so that what was agreed there counts for
	// nothing. It wraps orchestrator.ErrDeposed: a leader stops.
	ErrClusterChanged = fmt.Errorf("another etcd cluster, or an older state of it: %w", orchestrator.ErrDeposed)

	// ErrNoLeader says that nobody leads just now.
	ErrNoLeader = errors.New("nobody leads")
)
