package grpc

// Checks of a process's own certificate. Without them, peers would find the problem
// at the first call.

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
)

// checkOwn returns an error if no peer with the same authorities could accept the
// certificate, or if the authorities can accept no certificate.
func (c *Credentials) checkOwn(m *material, now time.Time) error {
	for _, a := range m.issuers {
		if !maySign(a) {
			return fmt.Errorf("load credentials: authorities in %s: certificate of %s is no authority: it may not sign certificates", c.ca, subject(a))
		}
	}
	chain, err := parseAll(m.certificate.Certificate)
	if err == nil {
		err = c.acceptable(m, chain, now)
	}
	if err != nil {
		return fmt.Errorf("load credentials from %s, with the authorities in %s: %w", c.cert, c.ca, err)
	}
	return nil
}

// acceptable verifies a chain for clients or for servers. One of the two suffices
// for a process that only calls or only serves.
func (c *Credentials) acceptable(m *material, chain []*x509.Certificate, now time.Time) error {
	_, _, err := c.verify(m, chain, x509.ExtKeyUsageClientAuth, now)
	invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
	if !ok || invalid.Reason != x509.IncompatibleUsage {
		return err
	}
	if _, _, other := c.verify(m, chain, x509.ExtKeyUsageServerAuth, now); other != nil {
		return errors.Join(err, other)
	}
	return nil
}

// suits returns an error if the credentials cannot identify a process that both
// serves and calls as a principal. It does not check validity periods, because files are
// replaced.
func (c *Credentials) suits(want principal) error {
	leaf := c.last.Load().certificate.Leaf
	if principals := principalsOf(c.identities(leaf)); !slices.Contains(principals, want) {
		return fmt.Errorf("%w: WithCredentials: %w: %s identifies %s, not %s",
			orchestrator.ErrInvalid, ErrCertificate, c.cert, describe(principals), want)
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if !allows(leaf, usage) {
			return fmt.Errorf("%w: WithCredentials: %w: in %s, %s", orchestrator.ErrInvalid, ErrCertificate, c.cert, notFor(leaf, usage))
		}
	}
	return nil
}

// allows reports whether a certificate, regardless of its issuers, is for a usage.
func allows(certificate *x509.Certificate, usage x509.ExtKeyUsage) bool {
	usages := certificate.ExtKeyUsage
	return len(usages)+len(certificate.UnknownExtKeyUsage) == 0 ||
		slices.Contains(usages, usage) || slices.Contains(usages, x509.ExtKeyUsageAny)
}

// maySign reports whether crypto/x509 accepts certificates that this one has signed.
func maySign(c *x509.Certificate) bool {
	switch {
	case c.Version == 3 && !c.BasicConstraintsValid, c.BasicConstraintsValid && !c.IsCA:
		return false
	}
	return c.KeyUsage == 0 || c.KeyUsage&x509.KeyUsageCertSign != 0
}

func parseAll(ders [][]byte) ([]*x509.Certificate, error) {
	certificates := make([]*x509.Certificate, len(ders))
	for i, der := range ders {
		var err error
		if certificates[i], err = x509.ParseCertificate(der); err != nil {
			return nil, fmt.Errorf("certificate %d: %w", i+1, err)
		}
	}
	return certificates, nil
}
