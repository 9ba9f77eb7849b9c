package grpc

// For how long a process's own certificate is valid, and the warning that it ends.

import (
	"context"
	"crypto/x509"
	"log/slog"
	"time"
)

// warnEvery is how long a warning that was not heeded is not repeated.
const warnEvery = 24 * time.Hour

// ValidUntil returns when the certificate ends that is in the files: itself, or
// before that what it is signed by, of the authorities that are in the files. It
// is made for a metric. It reads the files, as a handshake does; where they do not
// make a whole, it tells of the last that did.
func (c *Credentials) ValidUntil() time.Time {
	last := c.last.Load()
	if m, err := c.load(last); err == nil {
		return m.until
	}
	return last.until
}

// setValidity finds out until when a certificate is valid, and when to warn that it
// ends. Where no authority accepts it, it counts by itself.
func (m *material) setValidity(now time.Time) {
	leaf, between := m.certificate.Leaf, x509.NewCertPool()
	if chain, err := parseAll(m.certificate.Certificate); err == nil {
		for _, certificate := range chain[1:] {
			between.AddCert(certificate)
		}
	}
	m.until = leaf.NotAfter
	chains, err := leaf.Verify(x509.VerifyOptions{
		Roots:         m.authorities,
		Intermediates: between,
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err == nil {
		m.until = end(chains)
	}
	m.due.Store(m.until.Add(-leaf.NotAfter.Sub(leaf.NotBefore) / 10).UnixNano())
}

// announce says which certificate a process begins with.
func (c *Credentials) announce(logger *slog.Logger) {
	logger.Info("the certificate in use", "file", c.cert, "valid_until", c.last.Load().until.Format(time.RFC3339))
	c.watch(logger)
}

// watch warns where the certificate is about to end. It costs next to nothing where
// there is nothing to say, and is called wherever something happens anyway.
func (c *Credentials) watch(logger *slog.Logger) {
	if c == nil || !c.last.Load().ends(logger) {
		return
	}
	c.current(logger) // it may have been replaced; if not, that warns
}

// ends reports whether there is something to warn of, and somebody who listens.
func (m *material) ends(logger *slog.Logger) bool {
	return time.Now().UnixNano() >= m.due.Load() && logger.Enabled(context.Background(), slog.LevelWarn)
}

// warn warns, once, and again after a day.
func (m *material) warn(logger *slog.Logger, file string) {
	due := m.due.Load()
	if !m.ends(logger) || !m.due.CompareAndSwap(due, time.Now().Add(warnEvery).UnixNano()) {
		return
	}
	logger.Warn("the certificate ends: its files have to be replaced", "file", file,
		"valid_until", m.until.Format(time.RFC3339), "left", time.Until(m.until).Round(time.Second))
}
