package grpc

// The verification of certificates.

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrCertificate reports that a certificate was not accepted. The error of a call
// wraps it if either end did not accept the other's certificate. Errors of
// [LoadCredentials], [NewManager] and [NewMember] wrap it if no peer could accept
// the certificate. The text states which certificate, and why. Errors of crypto/x509
// at this end are wrapped too.
var ErrCertificate = errors.New("certificate not accepted")

// verify returns the identities of a certificate chain, and when the chain expires.
// It is the chain of a handshake, whose sender has proved that it has the key.
func (c *Credentials) verify(m *material, chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) ([]principal, time.Time, error) {
	if len(chain) == 0 {
		return nil, time.Time{}, fmt.Errorf("%w: none presented", ErrCertificate)
	}
	leaf, between := chain[0], x509.NewCertPool()
	for _, certificate := range chain[1:] {
		between.AddCert(certificate)
	}
	chains, err := leaf.Verify(x509.VerifyOptions{
		Roots:         m.authorities,
		Intermediates: between,
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{usage},
	})
	if err != nil {
		return nil, time.Time{}, &certificateError{text: why(leaf, usage, now, err), cause: err}
	}
	principals := principalsOf(c.identities(leaf))
	if len(principals) == 0 {
		return nil, time.Time{}, fmt.Errorf("%w: certificate of %s identifies no manager and no worker: it has no URI like %s or %s",
			ErrCertificate, subject(leaf), ManagerURI, WorkerURI("NAME"))
	}
	return principals, end(chains), nil
}

// verifyServer returns when a chain that identifies a principal expires.
func (c *Credentials) verifyServer(m *material, chain []*x509.Certificate, want principal, now time.Time) (time.Time, error) {
	principals, until, err := c.verify(m, chain, x509.ExtKeyUsageServerAuth, now)
	if err != nil {
		return time.Time{}, err
	}
	if !slices.Contains(principals, want) {
		return time.Time{}, fmt.Errorf("%w: it identifies %s, but the call is for %s", ErrCertificate, describe(principals), want)
	}
	return until, nil
}

// end returns when the last of the chains by which a certificate is accepted
// expires.
func end(chains [][]*x509.Certificate) time.Time {
	var last time.Time
	for _, chain := range chains {
		first := chain[0].NotAfter
		for _, certificate := range chain {
			if certificate.NotAfter.Before(first) {
				first = certificate.NotAfter
			}
		}
		if first.After(last) {
			last = first
		}
	}
	return last
}

// why describes what is wrong with a certificate.
func why(leaf *x509.Certificate, usage x509.ExtKeyUsage, now time.Time, err error) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		at := leaf
		if invalid.Cert != nil {
			at = invalid.Cert
		}
		switch {
		case invalid.Reason == x509.Expired && now.Before(at.NotBefore):
			return fmt.Sprintf("certificate of %s is not valid before %s", subject(at), at.NotBefore.Format(time.RFC3339))
		case invalid.Reason == x509.Expired:
			return fmt.Sprintf("certificate of %s expired at %s", subject(at), at.NotAfter.Format(time.RFC3339))
		case invalid.Reason == x509.IncompatibleUsage:
			return notFor(at, usage)
		}
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Sprintf("certificate of %s is signed by %q, not by an accepted authority", subject(leaf), clip(leaf.Issuer.String()))
	}
	return "certificate of " + subject(leaf)
}

func notFor(certificate *x509.Certificate, usage x509.ExtKeyUsage) string {
	if usage == x509.ExtKeyUsageClientAuth {
		return fmt.Sprintf("certificate of %s is not for clients: its extended key usage has no clientAuth", subject(certificate))
	}
	return fmt.Sprintf("certificate of %s is not for servers: its extended key usage has no serverAuth", subject(certificate))
}

// subject returns a name by which people recognize a certificate; nothing in it was
// verified.
func subject(certificate *x509.Certificate) string {
	if principals := principalsOf(alternativeNames(certificate)); len(principals) > 0 {
		return describe(principals)
	}
	return fmt.Sprintf("%q", clip(certificate.Subject.String()))
}

// certificateError is an error of crypto/x509 with a readable description.
type certificateError struct {
	text  string
	cause error
}

func (e *certificateError) Error() string {
	return fmt.Sprintf("%v: %s (%s)", ErrCertificate, e.text, clip(e.cause.Error()))
}

func (e *certificateError) Unwrap() []error { return []error{ErrCertificate, e.cause} }
