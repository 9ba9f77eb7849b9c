package grpc

// Whether a certificate is accepted, and if not, why.

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrCertificate is wrapped in the error of a call that failed because a
// certificate was not accepted: the other end's by this one, or this one's by the
// other end; and in that of [LoadCredentials], [NewManager] and [NewMember], of one
// that could not be accepted. The text says which, and why. What crypto/x509 found is wrapped too,
// where it was found at this end.
var ErrCertificate = errors.New("certificate not accepted")

// verify returns whom a chain of certificates stands for, and until when it does.
// The chain is that of a handshake, whose sender has shown that it has the key.
func (c *Credentials) verify(m *material, chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) ([]party, time.Time, error) {
	if len(chain) == 0 {
		return nil, time.Time{}, fmt.Errorf("%w: none was shown", ErrCertificate)
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
	parties := partiesOf(c.identities(leaf))
	if len(parties) == 0 {
		return nil, time.Time{}, fmt.Errorf("%w: that of %s stands for no manager and no worker: no URI like %s or %s",
			ErrCertificate, subject(leaf), ManagerURI, WorkerURI("NAME"))
	}
	return parties, end(chains), nil
}

// verifyServer returns until when a chain stands for a party.
func (c *Credentials) verifyServer(m *material, chain []*x509.Certificate, want party, now time.Time) (time.Time, error) {
	parties, until, err := c.verify(m, chain, x509.ExtKeyUsageServerAuth, now)
	if err != nil {
		return time.Time{}, err
	}
	if !slices.Contains(parties, want) {
		return time.Time{}, fmt.Errorf("%w: it is that of %s, where %s was called", ErrCertificate, describe(parties), want)
	}
	return until, nil
}

// end returns when the last of the chains ends that a certificate is accepted by.
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

// why says in one phrase what is wrong with a certificate.
func why(leaf *x509.Certificate, usage x509.ExtKeyUsage, now time.Time, err error) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		at := leaf
		if invalid.Cert != nil {
			at = invalid.Cert
		}
		switch {
		case invalid.Reason == x509.Expired && now.Before(at.NotBefore):
			return fmt.Sprintf("that of %s is not valid before %s", subject(at), at.NotBefore.Format(time.RFC3339))
		case invalid.Reason == x509.Expired:
			return fmt.Sprintf("that of %s has expired at %s", subject(at), at.NotAfter.Format(time.RFC3339))
		case invalid.Reason == x509.IncompatibleUsage:
			return notFor(at, usage)
		}
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Sprintf("that of %s is signed by %q, which is no authority accepted here", subject(leaf), clip(leaf.Issuer.String()))
	}
	return "that of " + subject(leaf)
}

func notFor(certificate *x509.Certificate, usage x509.ExtKeyUsage) string {
	if usage == x509.ExtKeyUsageClientAuth {
		return fmt.Sprintf("that of %s is not for clients: its extended key usage has no clientAuth", subject(certificate))
	}
	return fmt.Sprintf("that of %s is not for servers: its extended key usage has no serverAuth", subject(certificate))
}

// subject is how people know a certificate again; nothing in it was verified.
func subject(certificate *x509.Certificate) string {
	if parties := partiesOf(alternativeNames(certificate)); len(parties) > 0 {
		return describe(parties)
	}
	return fmt.Sprintf("%q", clip(certificate.Subject.String()))
}

// certificateError is what is wrong with a certificate according to crypto/x509.
type certificateError struct {
	text  string
	cause error
}

func (e *certificateError) Error() string {
	return fmt.Sprintf("%v: %s (%s)", ErrCertificate, e.text, clip(e.cause.Error()))
}

func (e *certificateError) Unwrap() []error { return []error{ErrCertificate, e.cause} }
