package grpc

// The validity of a process's own certificate, and the warning before it expires.

import (
	"context"
	"crypto/x509"
	"log/slog"
	"time"
)

// warnEvery is the interval between two warnings.
const warnEvery = 24 * time.Hour

// ValidUntil returns when the certificate in the files expires, or its chain to the
// authorities in the files, if that is earlier. It is for a metric. It reads the
// files, as a handshake does. If they do not match, it returns the time of the last
// matching set.
func (c *Credentials) ValidUntil() time.Time {
	last := c.last.Load()
	if m, err := c.load(last); err == nil {
		return m.until
	}
	return last.until
}

// setValidity determines until when the certificate is valid, and when to warn. If
// no authority accepts the certificate, its own validity counts.
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

// announce logs the certificate with which a process starts.
func (c *Credentials) announce(logger *slog.Logger) {
	logger.Info("certificate in use", "file", c.cert, "valid_until", c.last.Load().until.Format(time.RFC3339))
	c.watch(logger)
}

// watch warns if the certificate expires soon. It costs next to nothing otherwise,
// and is called at regular events.
func (c *Credentials) watch(logger *slog.Logger) {
	if c == nil || !c.last.Load().ends(logger) {
		return
	}
	c.current(logger) // warns unless the files were replaced
}

// ends reports whether a warning is due and would be logged.
func (m *material) ends(logger *slog.Logger) bool {
	return time.Now().UnixNano() >= m.due.Load() && logger.Enabled(context.Background(), slog.LevelWarn)
}

// warn logs a warning, at most once a day.
func (m *material) warn(logger *slog.Logger, file string) {
	due := m.due.Load()
	if !m.ends(logger) || !m.due.CompareAndSwap(due, time.Now().Add(warnEvery).UnixNano()) {
		return
	}
	logger.Warn("certificate expires soon, replace its files", "file", file,
		"valid_until", m.until.Format(time.RFC3339), "left", time.Until(m.until).Round(time.Second))
}
