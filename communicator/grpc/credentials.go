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
// A [Manager], a [Member] and a [Server] log at Info until when the certificate is
// valid that they start with. Once less than a tenth of its time is left, whoever uses
// it warns, and again each day, until the files are replaced: a Manager looks in each
// term, a Member with each heartbeat, and everybody at handshakes. Those who share
// Credentials warn together, once. [Credentials.ValidUntil] is for a metric.
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
// with certificates whose chain was verified, and with this end's own, from several
// goroutines, and may not change them. The default are the URIs among the certificate's subject
// alternative names.
func WithIdentities(f func(*x509.Certificate) []string) CredentialsOption {
	return credentialsOption(func(c *Credentials) { c.identities = f })
}

// LoadCredentials reads three PEM files: a certificate, with whatever lies
// between it and the authority after it; its private key; and the authorities
// that certificates of others have to be signed by, the same for managers and
// workers.
//
// It says what is wrong with them: with files that do not make a whole, with an
// authority that may not sign certificates, and, wrapping [ErrCertificate], with a
// certificate that nobody could accept who goes by the same authorities: it has
// expired or is not valid yet, is signed by none of them, stands for no manager and
// no worker, or is neither for servers nor for clients. [NewManager] and [NewMember]
// look besides whether it is that of a manager, or of the worker of that name, and for
// servers and clients both; [NewCommunicator] and [NewServer] do not. An authority that
// has expired is none that counts, but no error: it may stay until every file does
// without it. What others go by can only be found out by meeting them.
//
// Files that replace these later are used if they make a whole, and are not looked
// at further: no process that runs ends for want of better ones.
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

// readCredentials takes what makes a whole.
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

// material is what stood in the files.
type material struct {
	files       [3][]byte
	certificate tls.Certificate
	issuers     []*x509.Certificate
	authorities *x509.CertPool // the same
	until       time.Time      // when the certificate ends
	due         atomic.Int64   // when to warn that it does, in nanoseconds of Unix time
}

// current returns what is in the files now, or what was the last time that it
// made a whole, and warns where that ends soon.
func (c *Credentials) current(logger *slog.Logger) *material {
	m := c.renewed(logger)
	c.last.Load().warn(logger, c.cert)
	return m
}

// renewed is current, but for the warning.
func (c *Credentials) renewed(logger *slog.Logger) *material {
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
		logger.Info("certificates were replaced", "valid_until", m.until.Format(time.RFC3339))
	}
	return m
}

// load returns last if the files are as they were then.
func (c *Credentials) load(last *material) (*material, error) {
	files, err := c.read()
	if err != nil {
		return nil, err
	}
	if last != nil && same(files, last.files) {
		return last, nil
	}
	// What is new may be half of one file and half of another, and look well: it
	// has to be there twice.
	again, err := c.read()
	if err != nil {
		return nil, err
	}
	if !same(files, again) {
		return nil, errors.New("load credentials: the files are being replaced")
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

// named says which files have no names.
func (c *Credentials) named() error {
	var problems []error
	for _, file := range []struct{ of, name string }{
		{"the certificate", c.cert}, {"the key", c.key}, {"the authorities", c.ca},
	} {
		if file.name == "" {
			problems = append(problems, fmt.Errorf("%w: the file of %s has no name", orchestrator.ErrInvalid, file.of))
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

// maxFile is how large a file may be: enough for every authority of the web.
const maxFile = 1 << 20

// readBounded reads at once, so that what it reads is of one moment, as far as the
// file system grants that.
func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // was only read
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

// parseAuthorities is stricter than x509.CertPool, which leaves aside what it
// cannot read: half a file would then be fewer authorities.
func parseAuthorities(content []byte) (authorities []*x509.Certificate, err error) {
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
		authorities = append(authorities, certificate)
	}
	if bytes.Contains(content, []byte("-----BEGIN")) {
		return nil, errors.New("the last certificate is incomplete")
	}
	if len(authorities) == 0 {
		return nil, errors.New("no certificate")
	}
	return authorities, nil
}
