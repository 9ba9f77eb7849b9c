package peer

// The verification of certificates.

import (
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
)

// ErrCertificate reports that a certificate was not accepted. The text states which
// certificate, and why. Errors of crypto/x509 at this end are wrapped too.
var ErrCertificate = errors.New("certificate not accepted")

// verify returns the identities of a certificate chain, and when the chain expires.
// It is the chain of a handshake, whose sender has proved that it has the key.
func (c *Credentials) verify(m *material, chain []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) ([]identity.Principal, time.Time, error) {
	if len(chain) == 0 {
		return nil, time.Time{}, fmt.Errorf("%w: none presented", ErrCertificate)
	}
	leaf := chain[0]
	chains, err := m.chainsOf(chain, usage, now)
	if err != nil {
		text := fmt.Sprintf("%v: %s (%s)", ErrCertificate, describe(leaf, usage, now, err), identity.Clip(err.Error()))
		return nil, time.Time{}, &Error{Text: text, Causes: []error{ErrCertificate, err}}
	}
	principals := identity.PrincipalsOf(c.identities(leaf))
	if len(principals) == 0 {
		return nil, time.Time{}, fmt.Errorf("%w: certificate of %s identifies no manager and no worker: it has no URI like %s or %s",
			ErrCertificate, subject(leaf), identity.ManagerURI, identity.WorkerURI("NAME"))
	}
	return principals, expiry(chains), nil
}

// chainsOf returns the chains from a certificate, the first of those that were presented, to
// an authority.
func (m *material) chainsOf(presented []*x509.Certificate, usage x509.ExtKeyUsage, now time.Time) ([][]*x509.Certificate, error) {
	between := x509.NewCertPool()
	for _, certificate := range presented[1:] {
		between.AddCert(certificate)
	}
	return presented[0].Verify(x509.VerifyOptions{
		Roots: m.authorities, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
	})
}

// verifyServer returns when a chain that identifies a principal expires.
func (c *Credentials) verifyServer(m *material, chain []*x509.Certificate, want identity.Principal, now time.Time) (time.Time, error) {
	principals, until, err := c.verify(m, chain, x509.ExtKeyUsageServerAuth, now)
	if err != nil {
		return time.Time{}, err
	}
	if !slices.Contains(principals, want) {
		return time.Time{}, fmt.Errorf("%w: it identifies %s, but the call is for %s", ErrCertificate, identity.Describe(principals), want)
	}
	return until, nil
}

// expiry returns when the last of the chains by which a certificate is accepted
// expires.
func expiry(chains [][]*x509.Certificate) time.Time {
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

// describe says what is wrong with a certificate.
func describe(leaf *x509.Certificate, usage x509.ExtKeyUsage, now time.Time, err error) string {
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
		return fmt.Sprintf("certificate of %s is signed by %q, not by an accepted authority", subject(leaf), identity.Clip(leaf.Issuer.String()))
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
	if principals := identity.PrincipalsOf(alternativeNames(certificate)); len(principals) > 0 {
		return identity.Describe(principals)
	}
	return fmt.Sprintf("%q", identity.Clip(certificate.Subject.String()))
}

// alternativeNames is the default of WithIdentities. It returns the URIs as spelled
// in the certificate. The URIs field of x509.Certificate has passed through net/url,
// which treats ORCHESTRATOR://manager as orchestrator://manager.
func alternativeNames(certificate *x509.Certificate) (uris []string) {
	const uri = 6 // the tag of a URI among the names
	for _, extension := range certificate.Extensions {
		if !extension.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}) {
			continue
		}
		var names []asn1.RawValue
		if _, err := asn1.Unmarshal(extension.Value, &names); err != nil {
			return nil // crypto/x509 has refused such a certificate
		}
		for _, name := range names {
			if name.Class == asn1.ClassContextSpecific && name.Tag == uri {
				uris = append(uris, string(name.Bytes))
			}
		}
	}
	return uris
}

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

// acceptable verifies a chain for clients and for servers. One of the two suffices for
// a process that only calls or only serves.
func (c *Credentials) acceptable(m *material, chain []*x509.Certificate, now time.Time) error {
	_, _, client := c.verify(m, chain, x509.ExtKeyUsageClientAuth, now)
	_, _, server := c.verify(m, chain, x509.ExtKeyUsageServerAuth, now)
	if client == nil || server == nil {
		return nil
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](client); !ok || invalid.Reason != x509.IncompatibleUsage {
		return client // for servers it is the same
	}
	return errors.Join(client, server)
}

// suits returns an error if the credentials cannot identify a process that both
// serves and calls as a principal. It does not check validity periods, because files are
// replaced.
func (c *Credentials) suits(want identity.Principal) error {
	leaf := c.last.Load().certificate.Leaf
	if principals := identity.PrincipalsOf(c.identities(leaf)); !slices.Contains(principals, want) {
		return fmt.Errorf("%w: WithCredentials: %w: %s identifies %s, not %s",
			orchestrator.ErrInvalid, ErrCertificate, c.cert, identity.Describe(principals), want)
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
