// Package testca makes certificate authorities and certificates for tests, as files,
// in the form in which processes get them.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA is a certificate authority. It is safe for concurrent use.
type CA struct {
	Certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// New returns an authority that is valid from a day ago until tomorrow.
func New(t testing.TB, name string, opts ...Option) *CA {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber:          serial(t),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-24 * time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	for _, opt := range opts {
		opt(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	certificate, err := x509.ParseCertificate(der)
	must(t, err)
	return &CA{Certificate: certificate, key: key}
}

// PEM returns the authority's certificate in PEM format.
func (ca *CA) PEM() []byte { return encode("CERTIFICATE", ca.Certificate.Raw) }

// Files are the paths of the three files of a process.
type Files struct{ Cert, Key, CA string }

// Option changes a certificate.
type Option func(*x509.Certificate)

// Lasting makes a certificate that is valid from now on, for d.
func Lasting(d time.Duration) Option {
	return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now(), time.Now().Add(d) }
}

// Expired makes a certificate that expired an hour ago.
func Expired() Option {
	return func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }
}

// NotYet makes a certificate that becomes valid in an hour.
func NotYet() Option {
	return func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }
}

// Until sets when a certificate expires.
func Until(end time.Time) Option {
	return func(c *x509.Certificate) { c.NotAfter = end }
}

// Usage sets the extended key usages of a certificate. The default is servers and
// clients both.
func Usage(usage ...x509.ExtKeyUsage) Option {
	return func(c *x509.Certificate) { c.ExtKeyUsage = usage }
}

// Manager returns new files of a manager.
func (ca *CA) Manager(t testing.TB, opts ...Option) Files {
	t.Helper()
	return ca.Issue(t, []string{"orchestrator://manager"}, opts...)
}

// Worker returns new files of the worker with this name.
func (ca *CA) Worker(t testing.TB, name string, opts ...Option) Files {
	t.Helper()
	return ca.Issue(t, []string{"orchestrator://worker/" + url.PathEscape(name)}, opts...)
}

// Issue returns new files of a process with these URIs in its certificate.
func (ca *CA) Issue(t testing.TB, uris []string, opts ...Option) Files {
	t.Helper()
	dir := t.TempDir()
	files := Files{
		Cert: filepath.Join(dir, "cert.pem"),
		Key:  filepath.Join(dir, "key.pem"),
		CA:   filepath.Join(dir, "ca.pem"),
	}
	ca.Renew(t, files, uris, opts...)
	return files
}

// Renew overwrites the files of a process with a new key and certificate.
func (ca *CA) Renew(t testing.TB, files Files, uris []string, opts ...Option) {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t),
		Subject:      pkix.Name{CommonName: "test"},
		NotBefore:    time.Now().Add(-12 * time.Hour),
		NotAfter:     time.Now().Add(12 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	// Not in template.URIs, because net/url would change their spelling.
	const uri = 6 // the tag of a URI among the names
	names := make([]asn1.RawValue, len(uris))
	for i, name := range uris {
		names[i] = asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: uri, Bytes: []byte(name)}
	}
	alternative, err := asn1.Marshal(names)
	must(t, err)
	if len(uris) > 0 {
		template.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: alternative}}
	}
	for _, opt := range opts {
		opt(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Certificate, key.Public(), ca.key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	must(t, os.WriteFile(files.Cert, encode("CERTIFICATE", der), 0o600))
	must(t, os.WriteFile(files.Key, encode("PRIVATE KEY", private), 0o600))
	must(t, os.WriteFile(files.CA, ca.PEM(), 0o600))
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	must(t, err)
	return n
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
