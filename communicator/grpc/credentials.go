package grpc

// Certificates, as users see them. Package peer reads and verifies them.

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
)

// ManagerURI is the URI among a certificate's subject alternative names that
// identifies a manager: orchestrator://manager.
const ManagerURI = identity.ManagerURI

// WorkerURI returns the URI among a certificate's subject alternative names that
// identifies the worker of a name: orchestrator://worker/NAME. Bytes that are not
// allowed in a URI, and slashes, are escaped, so every name has a URI. Other spellings
// of the same URI are not accepted.
func WorkerURI(name string) string { return identity.WorkerURI(name) }

// ErrCertificate reports that a certificate was not accepted. The error of a call
// wraps it if either end did not accept the other's certificate. Errors of
// [LoadCredentials], manager.New and manager.NewMember wrap it if no peer could accept
// the certificate. The text states which certificate, and why. Errors of crypto/x509
// at this end are wrapped too.
var ErrCertificate = peer.ErrCertificate

// ErrPlaintext reports that plaintext would have left the machine: a server was to
// listen off loopback, or a connection led off loopback, with neither
// [WithCredentials] nor [WithPlaintext]. Nothing was sent.
var ErrPlaintext = peer.ErrPlaintext

// Credentials are the certificate and key of a process, and the authorities whose
// certificates it accepts. All three are files, which are read at each handshake, so
// replaced files are used without a restart. While the files are incomplete or do
// not match, such as a new certificate beside the old key, the last matching set is
// used, and the problem is logged.
//
// A connection may outlive the files that it was made with, by about 70 minutes at most.
// It never outlives the certificates: it ends when one of them expires.
//
// When a manager.Manager, a manager.Member or a [Server] starts, it logs at Info until
// when its certificate is valid. Once less than a tenth of the lifetime is left, it
// warns, and again each day, until the files are replaced. A Manager checks in each
// term, a Member with each heartbeat, and all of them at handshakes. Users of the same
// Credentials share one warning. [Credentials.ValidUntil] is for a metric.
//
// Credentials are safe for concurrent use.
type Credentials struct{ files *peer.Credentials }

// ValidUntil returns when the certificate in the files expires, or its chain to the
// authorities in the files, if that is earlier. It is for a metric. It reads the
// files, as a handshake does. If they do not match, it returns the time of the last
// matching set.
func (c *Credentials) ValidUntil() time.Time { return c.files.ValidUntil() }

// CredentialsOption is for [LoadCredentials].
type CredentialsOption interface {
	applyCredentials(*credentialsSettings)
}

type credentialsSettings struct {
	identities func(*x509.Certificate) []string // nil: the default
	err        error
}

type credentialsOption func(*credentialsSettings)

func (f credentialsOption) applyCredentials(s *credentialsSettings) { f(s) }

// WithIdentities sets the function that returns the identities of a certificate, as
// URIs: [ManagerURI], or made by [WorkerURI]. Other URIs are ignored. It is for
// certificates with identities of another form, such as SPIFFE. The function is
// called with certificates whose chain was verified, and with this end's own
// certificate, from several goroutines. It must not change them. The default returns
// the URIs among the certificate's subject alternative names.
func WithIdentities(f func(*x509.Certificate) []string) CredentialsOption {
	return credentialsOption(func(s *credentialsSettings) {
		if f == nil {
			s.err = errors.Join(s.err, fmt.Errorf("%w: WithIdentities: nil", orchestrator.ErrInvalid))
		}
		s.identities = f
	})
}

// LoadCredentials reads three PEM files. cert is a certificate, followed by any
// intermediate certificates. key is its private key. ca contains the authorities
// that must have signed the certificates of others, the same for managers and
// workers.
//
// It returns an error if the files do not match, or if an authority is not allowed
// to sign certificates. The error wraps [ErrCertificate] if no peer with the same
// authorities could accept the certificate:
//
//   - it has expired, or is not valid yet
//   - no authority has signed it
//   - it identifies no manager and no worker
//   - it is neither for servers nor for clients
//
// An expired authority is ignored, not an error, so it may stay until all files are
// replaced. The authorities of peers are not known before a handshake.
//
// manager.New and manager.NewMember also check that the certificate is a manager's, or
// that of the worker of that name, and that it is for servers and clients both.
// [NewCommunicator] and [NewServer] do not.
//
// Files that replace these later are used if they match, and are not checked
// further, so that bad files do not end a running process.
func LoadCredentials(cert, key, ca string, opts ...CredentialsOption) (*Credentials, error) {
	var s credentialsSettings
	for _, opt := range opts {
		if opt == nil {
			s.err = errors.Join(s.err, fmt.Errorf("%w: a CredentialsOption is nil", orchestrator.ErrInvalid))
			continue
		}
		opt.applyCredentials(&s)
	}
	if s.err != nil {
		return nil, fmt.Errorf("load credentials: %w", s.err)
	}
	files, err := peer.LoadCredentials(cert, key, ca, s.identities)
	if err != nil {
		return nil, err
	}
	return &Credentials{files: files}, nil
}
