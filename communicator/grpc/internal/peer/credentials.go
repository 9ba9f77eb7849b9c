package peer

// Certificates, and the files that they are read from at each handshake.

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator"
)

// Credentials are the certificate and key of a process, and the authorities whose
// certificates it accepts. They are files, which are read at each handshake. While
// the files are incomplete or do not match, the last matching set is used, and the
// problem is logged. The methods may be called from any number of goroutines.
type Credentials struct {
	cert, key, ca string
	identities    func(*x509.Certificate) []string

	last    atomic.Pointer[material]
	problem atomic.Pointer[string] // when the files were last read; nil: none
}

// LoadCredentials reads three PEM files, and checks that peers with the same
// authorities could accept the certificate. identities returns the identities of a
// certificate, as URIs; nil: the URIs among its subject alternative names.
func LoadCredentials(cert, key, ca string, identities func(*x509.Certificate) []string) (*Credentials, error) {
	c, err := readCredentials(cert, key, ca, identities)
	if err != nil {
		return nil, err
	}
	if err := c.checkOwn(c.last.Load(), time.Now()); err != nil {
		return nil, err
	}
	return c, nil
}

// readCredentials reads matching files, without checkOwn.
func readCredentials(cert, key, ca string, identities func(*x509.Certificate) []string) (*Credentials, error) {
	if identities == nil {
		identities = alternativeNames
	}
	c := &Credentials{cert: cert, key: key, ca: ca, identities: identities}
	if cert == "" || key == "" || ca == "" {
		return nil, fmt.Errorf("load credentials: %w: a file name is empty: certificate %q, key %q, authorities %q", orchestrator.ErrInvalid, cert, key, ca)
	}
	m, err := c.load(nil)
	if err != nil {
		return nil, err
	}
	c.last.Store(m)
	return c, nil
}

// material is the content of the files.
type material struct {
	files       [3]string
	certificate tls.Certificate
	issuers     []*x509.Certificate
	authorities *x509.CertPool // pool of issuers
	until       time.Time      // when the certificate expires
	due         atomic.Int64   // when to warn of that, in nanoseconds of Unix time
}

// current returns the content of the files, or the last matching content if they do
// not match now. It warns if the certificate expires soon.
func (c *Credentials) current(logger *slog.Logger) *material {
	m := c.renewed(logger)
	c.last.Load().warn(logger, c.cert)
	return m
}

// renewed is current without the warning.
func (c *Credentials) renewed(logger *slog.Logger) *material {
	last := c.last.Load()
	m, err := c.load(last)
	if err != nil {
		text := err.Error()
		if before := c.problem.Swap(&text); before == nil || *before != text {
			logger.Warn("certificates not loaded, keeping previous ones", "err", err)
		}
		return last
	}
	c.problem.Store(nil)
	if m != last && c.last.CompareAndSwap(last, m) {
		logger.Info("certificates replaced", "valid_until", m.until.Format(time.RFC3339))
	}
	return m
}

// load reads the files. It returns last if they have not changed.
func (c *Credentials) load(last *material) (*material, error) {
	files, err := c.read()
	if err != nil {
		return nil, err
	}
	if last != nil && files == last.files {
		return last, nil
	}
	// A read during a replacement may return parts of different files that look valid.
	// So new content must be read twice.
	again, err := c.read()
	if err != nil {
		return nil, err
	}
	if files != again {
		return nil, errors.New("load credentials: files are being replaced")
	}
	m := material{files: files}
	if m.certificate, err = tls.X509KeyPair([]byte(files[0]), []byte(files[1])); err != nil {
		return nil, fmt.Errorf("load credentials from %s and %s: %w", c.cert, c.key, err)
	}
	if m.issuers, err = parseAuthorities([]byte(files[2])); err != nil {
		return nil, fmt.Errorf("load credentials: authorities in %s: %w", c.ca, err)
	}
	m.authorities = x509.NewCertPool()
	for _, a := range m.issuers {
		m.authorities.AddCert(a)
	}
	m.setValidity(time.Now())
	return &m, nil
}

// maxFile is the maximum size of a file in bytes: enough for every authority of the
// web.
const maxFile = 1 << 20

func (c *Credentials) read() (files [3]string, err error) {
	for i, name := range []string{c.cert, c.key, c.ca} {
		content, err := os.ReadFile(name)
		if err == nil && len(content) > maxFile {
			err = fmt.Errorf("%s has more than %d bytes", name, maxFile)
		}
		if err != nil {
			return files, fmt.Errorf("load credentials: %w", err)
		}
		files[i] = string(content)
	}
	return files, nil
}

// parseAuthorities parses all certificates of a PEM file. It is stricter than
// x509.CertPool, which skips what it cannot read: a truncated file would then
// contain fewer authorities.
func parseAuthorities(content []byte) (authorities []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, content = pem.Decode(content); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("contains a %s, only certificates are allowed", block.Type)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		authorities = append(authorities, certificate)
	}
	if bytes.Contains(content, []byte("-----BEGIN")) {
		return nil, errors.New("last certificate is incomplete")
	}
	if len(authorities) == 0 {
		return nil, errors.New("no certificate")
	}
	return authorities, nil
}

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
	leaf := m.certificate.Leaf
	m.until = leaf.NotAfter
	if chain, err := parseAll(m.certificate.Certificate); err == nil {
		if chains, err := m.chainsOf(chain, x509.ExtKeyUsageAny, now); err == nil {
			m.until = expiry(chains)
		}
	}
	m.due.Store(m.until.Add(-leaf.NotAfter.Sub(leaf.NotBefore) / 10).UnixNano())
}

// announce logs the certificate with which a process starts.
func (c *Credentials) announce(logger *slog.Logger) {
	logger.Info("certificate in use", "file", c.cert, "valid_until", c.last.Load().until.Format(time.RFC3339))
	c.Watch(logger)
}

// Watch warns if the certificate expires soon. It costs next to nothing otherwise,
// and is called at regular events.
func (c *Credentials) Watch(logger *slog.Logger) {
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
