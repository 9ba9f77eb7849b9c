package grpc

// Certificates: the files that they come from, read anew for each handshake.

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator"
)

// Credentials are the certificate and key of a process, and the authorities whose
// certificates it accepts, as files. They are read at each handshake, so that
// files that were replaced are used without a restart. While what is in them
// does not make a whole, such as a new certificate beside the old key, the last
// that did is used; that is logged.
//
// A connection outlives the files that it was made with, for the hour or so
// that connections last, but never the certificates: it ends when one of them does.
//
// Credentials are safe for concurrent use.
type Credentials struct {
	cert, key, ca string
	identities    func(*x509.Certificate) []string

	last    atomic.Pointer[material]
	problem atomic.Pointer[string] // of the last time that the files were read; nil: none
}

// CredentialsOption is for [LoadCredentials].
type CredentialsOption interface {
	applyCredentials(*Credentials)
}

type credentialsOption func(*Credentials)

func (f credentialsOption) applyCredentials(c *Credentials) { f(c) }

// WithIdentities sets whom a certificate stands for: a function that returns
// URIs, each [ManagerURI] or made by [WorkerURI]; others are left aside. It is
// for certificates that say so in other words, such as SPIFFE's. It is called
// with certificates whose chain was verified, from several goroutines, and may
// not change them. The default are the URIs among the certificate's subject
// alternative names.
func WithIdentities(f func(*x509.Certificate) []string) CredentialsOption {
	return credentialsOption(func(c *Credentials) { c.identities = f })
}

// LoadCredentials reads three PEM files: a certificate, with whatever lies
// between it and the authority after it; its private key; and the authorities
// that certificates of others have to be signed by, the same for managers and
// workers. It says what is wrong with them.
func LoadCredentials(cert, key, ca string, opts ...CredentialsOption) (*Credentials, error) {
	c := &Credentials{cert: cert, key: key, ca: ca, identities: alternativeNames}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("%w: a CredentialsOption is nil", orchestrator.ErrInvalid)
		}
		opt.applyCredentials(c)
	}
	if c.identities == nil {
		return nil, fmt.Errorf("%w: WithIdentities: nil", orchestrator.ErrInvalid)
	}
	m, err := c.load(nil)
	if err != nil {
		return nil, err
	}
	c.last.Store(m)
	return c, nil
}

// material is what stood in the files.
type material struct {
	files       [3][]byte
	certificate tls.Certificate
	authorities *x509.CertPool
}

// current returns what is in the files now, or what was the last time that it
// made a whole.
func (c *Credentials) current(logger *slog.Logger) *material {
	last := c.last.Load()
	m, err := c.load(last)
	if err != nil {
		text := err.Error()
		if before := c.problem.Swap(&text); before == nil || *before != text {
			logger.Warn("certificates could not be loaded; the ones from before are used", "err", err)
		}
		return last
	}
	c.problem.Store(nil)
	if m != last && c.last.CompareAndSwap(last, m) {
		logger.Info("certificates were replaced", "valid_until", m.certificate.Leaf.NotAfter.Format(time.RFC3339))
	}
	return m
}

// load returns last if the files are as they were then.
func (c *Credentials) load(last *material) (*material, error) {
	var m material
	for i, name := range []string{c.cert, c.key, c.ca} {
		content, err := readBounded(name)
		if err != nil {
			return nil, fmt.Errorf("load credentials: %w", err)
		}
		m.files[i] = content
	}
	if last != nil && bytes.Equal(m.files[0], last.files[0]) && bytes.Equal(m.files[1], last.files[1]) && bytes.Equal(m.files[2], last.files[2]) {
		return last, nil
	}
	var err error
	if m.certificate, err = tls.X509KeyPair(m.files[0], m.files[1]); err != nil {
		return nil, fmt.Errorf("load credentials from %s and %s: %w", c.cert, c.key, err)
	}
	if m.authorities, err = parseAuthorities(m.files[2]); err != nil {
		return nil, fmt.Errorf("load credentials: authorities in %s: %w", c.ca, err)
	}
	return &m, nil
}

// maxFile is how large a file may be: enough for every authority of the web.
const maxFile = 1 << 20

func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // was only read
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes", name, maxFile)
	}
	return content, nil
}

// parseAuthorities is stricter than x509.CertPool, which leaves aside what it
// cannot read: half a file would then be fewer authorities.
func parseAuthorities(content []byte) (*x509.CertPool, error) {
	pool, n := x509.NewCertPool(), 0
	for {
		var block *pem.Block
		if block, content = pem.Decode(content); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("a %s, where only certificates belong", block.Type)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(certificate)
		n++
	}
	if bytes.Contains(content, []byte("-----BEGIN")) {
		return nil, errors.New("the last certificate is incomplete")
	}
	if n == 0 {
		return nil, errors.New("no certificate")
	}
	return pool, nil
}
