// Package identity names the ends of a connection: the manager, and workers by their
// names. It has no I/O.
package identity

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/f8949c05/orchestrator"
)

// ManagerURI is the URI among a certificate's subject alternative names that
// identifies a manager.
const ManagerURI = "orchestrator://manager"

const workerPrefix = "orchestrator://worker/"

// WorkerURI returns the URI among a certificate's subject alternative names that
// identifies the worker of a name. Bytes that are not allowed in a URI, and slashes,
// are escaped, so every name has a URI. Other spellings of the same URI are not
// accepted.
func WorkerURI(name string) string { return workerPrefix + url.PathEscape(name) }

// Role determines what a peer may do.
type Role uint8

const (
	RoleManager Role = iota + 1 // commands workers
	RoleWorker                  // acts as the worker of its name
)

// Principal is the identity of one end of a connection.
type Principal struct {
	Role Role
	Name string // of a worker
}

// String returns a readable description, in which a long name is shortened.
func (p Principal) String() string {
	if p.Role == RoleManager {
		return "a manager"
	}
	return fmt.Sprintf("worker %q", Clip(p.Name))
}

// PrincipalsOf returns the identities among the URIs. It ignores every other URI and
// every other spelling.
func PrincipalsOf(uris []string) []Principal {
	var principals []Principal
	for _, uri := range uris {
		if uri == ManagerURI {
			principals = append(principals, Principal{Role: RoleManager})
			continue
		}
		escaped, ok := strings.CutPrefix(uri, workerPrefix)
		if !ok {
			continue
		}
		name, err := url.PathUnescape(escaped)
		if err == nil && WorkerURI(name) == uri && CheckName("worker", name) == nil {
			principals = append(principals, Principal{Role: RoleWorker, Name: name})
		}
	}
	return principals
}

// Describe returns a readable list of identities.
func Describe(principals []Principal) string {
	const most = 5
	texts := make([]string, 0, most+1)
	for i, p := range principals {
		if i == most {
			texts = append(texts, fmt.Sprintf("%d others", len(principals)-most))
			break
		}
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ", ")
}

// Clip shortens text from a peer for errors and logs.
func Clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// MaxName is the maximum length of the name of a worker or a task, in bytes.
const MaxName = 1024

// CheckName returns an error for a name that no worker or task can have. what is the
// kind of the name, for the text. The error wraps [orchestrator.ErrInvalid].
func CheckName(what, name string) error {
	if name == "" {
		return fmt.Errorf("%w: %s without a name", orchestrator.ErrInvalid, what)
	}
	if len(name) > MaxName {
		return fmt.Errorf("%w: %s name of %d bytes: at most %d", orchestrator.ErrInvalid, what, len(name), MaxName)
	}
	return nil
}

// MaxAddress is longer than any host name with a port.
const MaxAddress = 512

// CheckAddress returns an error for an address that cannot be called.
func CheckAddress(address string) error {
	if len(address) > MaxAddress {
		return fmt.Errorf("%w: address of %d bytes: at most %d", orchestrator.ErrInvalid, len(address), MaxAddress)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%w: address %q is not host:port: %w", orchestrator.ErrInvalid, address, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%w: address %q: port must be a number from 1 to 65535", orchestrator.ErrInvalid, address)
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		return fmt.Errorf("%w: address %q is for listening, the worker cannot be called at it", orchestrator.ErrInvalid, address)
	}
	return nil
}
