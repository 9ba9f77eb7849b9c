package grpc

// Certificates, and the files that they are read from at each handshake.

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
// certificates it accepts. All three are files, which are read at each handshake, so
// replaced files are used without a restart. While the files are incomplete or do
// not match, such as a new certificate beside the old key, the last matching set is
// used, and the problem is logged.
//
// A connection may outlive the files that it was made with, for the hour or so that
// connections last. It never outlives the certificates: it ends when one of them
// expires.
//
// When a [Manager], a [Member] or a [Server] starts, it logs at Info until when its
// certificate is valid. Once less than a tenth of the lifetime is left, it warns,
// and again each day, until the files are replaced. A Manager checks in each term, a
// Member with each heartbeat, and all of them at handshakes. Users of the same
// Credentials share one warning. [Credentials.ValidUntil] is for a metric.
//
// Credentials are safe for concurrent use.
type Credentials struct {
	cert, key, ca string
	identities    func(*x509.Certificate) []string

	last    atomic.Pointer[material]
	problem atomic.Pointer[string] // when the files were last read; nil: none
}

// CredentialsOption is for [LoadCredentials].
type CredentialsOption interface {
	applyCredentials(*Credentials)
}

type credentialsOption func(*Credentials)

func (f credentialsOption) applyCredentials(c *Credentials) { f(c) }

// WithIdentities sets the function that returns the identities of a certificate, as
// URIs: [ManagerURI], or made by [WorkerURI]. Other URIs are ignored. It is for
// certificates with identities of another form, such as SPIFFE. The function is
// called with certificates whose chain was verified, and with this end's own
// certificate, from several goroutines. It must not change them. The default returns
// the URIs among the certificate's subject alternative names.
func WithIdentities(f func(*x509.Certificate) []string) CredentialsOption {
	return credentialsOption(func(c *Credentials) { c.identities = f })
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
// [NewManager] and [NewMember] also check that the certificate is a manager's, or
// that of the worker of that name, and that it is for servers and clients both.
// [NewCommunicator] and [NewServer] do not.
//
// Files that replace these later are used if they match, and are not checked
// further, so that bad files do not end a running process.
func LoadCredentials(cert, key, ca string, opts ...CredentialsOption) (*Credentials, error) {
	c, err := readCredentials(cert, key, ca, opts)
	if err != nil {
		return nil, err
	}
	if err := c.checkOwn(c.last.Load(), time.Now()); err != nil {
		return nil, err
	}
	return c, nil
}

// readCredentials reads matching files, without checkOwn.
func readCredentials(cert, key, ca string, opts []CredentialsOption) (*Credentials, error) {
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
	if err := c.named(); err != nil {
		return nil, fmt.Errorf("load credentials: %w", err)
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
	files       [3][]byte
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
	if last != nil && same(files, last.files) {
		return last, nil
	}
	// A read during a replacement may return parts of different files that look valid.
	// So new content must be read twice.
	again, err := c.read()
	if err != nil {
		return nil, err
	}
	if !same(files, again) {
		return nil, errors.New("load credentials: files are being replaced")
	}
	m := material{files: files}
	if m.certificate, err = tls.X509KeyPair(m.files[0], m.files[1]); err != nil {
		return nil, fmt.Errorf("load credentials from %s and %s: %w", c.cert, c.key, err)
	}
	if m.issuers, err = parseAuthorities(m.files[2]); err != nil {
		return nil, fmt.Errorf("load credentials: authorities in %s: %w", c.ca, err)
	}
	m.authorities = x509.NewCertPool()
	for _, a := range m.issuers {
		m.authorities.AddCert(a)
	}
	m.setValidity(time.Now())
	return &m, nil
}

// named returns an error if a file name is empty.
func (c *Credentials) named() error {
	var problems []error
	for _, file := range []struct{ of, name string }{
		{"certificate", c.cert}, {"key", c.key}, {"authorities", c.ca},
	} {
		if file.name == "" {
			problems = append(problems, fmt.Errorf("%w: file name of %s is empty", orchestrator.ErrInvalid, file.of))
		}
	}
	return errors.Join(problems...)
}

func (c *Credentials) read() (files [3][]byte, err error) {
	for i, name := range []string{c.cert, c.key, c.ca} {
		if files[i], err = readBounded(name); err != nil {
			return files, fmt.Errorf("load credentials: %w", err)
		}
	}
	return files, nil
}

func same(a, b [3][]byte) bool {
	return bytes.Equal(a[0], b[0]) && bytes.Equal(a[1], b[1]) && bytes.Equal(a[2], b[2])
}

// maxFile is the maximum size of a file in bytes: enough for every authority of the
// web.
const maxFile = 1 << 20

// readBounded reads a file with one call, so that the content is consistent as far
// as the file system guarantees it.
func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading only
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes", name, maxFile)
	}
	content := make([]byte, info.Size()+1)
	n, err := io.ReadFull(f, content)
	switch {
	case err == nil:
		return nil, fmt.Errorf("%s is being written", name)
	case n > 0 && !errors.Is(err, io.ErrUnexpectedEOF), n == 0 && !errors.Is(err, io.EOF):
		return nil, err
	}
	return content[:n], nil
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
