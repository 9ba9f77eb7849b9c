package stage

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"time"
)

// CA is a certificate authority for one run. Its key is only in memory. Programs cannot
// use internal/testca, which is internal to its module and needs a
// testing.TB.
type CA struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewCA returns a new authority.
func NewCA() (*CA, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	c := template("authority of this run")
	c.IsCA, c.BasicConstraintsValid = true, true
	c.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return nil, err
	}
	c, err = x509.ParseCertificate(der)
	return &CA{certificate: c, key: key}, err
}

// PEM returns the authority's certificate.
func (ca *CA) PEM() []byte { return encode("CERTIFICATE", ca.certificate.Raw) }

// Issue returns a certificate for a client or server on this machine and its key,
// both in PEM. If uri is not empty, it is the identity in the certificate.
func (ca *CA) Issue(name, uri string) (certificate, key []byte, err error) {
	private, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	c := template(name)
	c.KeyUsage = x509.KeyUsageDigitalSignature
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	if uri != "" {
		identity, err := url.Parse(uri)
		if err != nil {
			return nil, nil, err
		}
		c.URIs = []*url.URL{identity}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, ca.certificate, private.Public(), ca.key)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", secret), nil
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes([]byte(rand.Text()[:16])),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
