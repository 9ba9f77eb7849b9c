// The files of a run, and the certificates among them. The certificates are made here
// so that the example needs no set-up. For certificates from elsewhere, all that
// matters is the URI in them.

package main

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
	"os"
	"path/filepath"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc"
)

// folder is the path of the folder for all files that outlive a process.
type folder string

// make creates the folder and its subfolders.
func (f folder) make() error {
	for _, sub := range []string{"certs", "results", "logs", "followed"} {
		if err := os.MkdirAll(filepath.Join(string(f), sub), 0o700); err != nil {
			return err
		}
	}
	return nil
}

func (f folder) state() string { return filepath.Join(string(f), "manager.db") }

// certificate and key return the files of the manager or of a worker.
func (f folder) certificate(name string) string {
	return filepath.Join(string(f), "certs", name+".pem")
}

func (f folder) key(name string) string { return filepath.Join(string(f), "certs", name+"-key.pem") }

// authority returns the file of the authority's certificate. Its key is not kept.
func (f folder) authority() string { return filepath.Join(string(f), "certs", "authority.pem") }

// record returns the file in which a worker records its tasks for its successor.
func (f folder) record(worker string) string { return filepath.Join(string(f), worker+".db") }

func (f folder) results(worker string) string {
	return filepath.Join(string(f), "results", worker+".jsonl")
}

// log and followed return a growing file, and the record of its followed lines.
func (f folder) log(name string) string { return filepath.Join(string(f), "logs", name+".log") }

func (f folder) followed(name string) string {
	return filepath.Join(string(f), "followed", name+".jsonl")
}

// managerName is the name of the manager's files.
const managerName = "manager"

// certify creates an authority, which signs a certificate for the manager and one
// for each worker. The authority's key is not kept, so it signs no others.
func certify(f folder, workers ...string) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	authority := template("authority of this run")
	authority.IsCA, authority.BasicConstraintsValid = true, true
	authority.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, key.Public(), key)
	if err != nil {
		return err
	}
	if err := writePEM(f.authority(), "CERTIFICATE", der); err != nil {
		return err
	}
	if err := sign(f, managerName, grpc.ManagerURI, authority, key); err != nil {
		return err
	}
	for _, w := range workers {
		if err := sign(f, w, grpc.WorkerURI(w), authority, key); err != nil {
			return err
		}
	}
	return nil
}

// sign creates a key and a certificate with the URI as its identity.
func sign(f folder, name, uri string, authority *x509.Certificate, by *ecdsa.PrivateKey) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	identity, err := url.Parse(uri)
	if err != nil {
		return err
	}
	c := template(name)
	c.KeyUsage = x509.KeyUsageDigitalSignature
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	c.URIs = []*url.URL{identity}
	der, err := x509.CreateCertificate(rand.Reader, c, authority, key.Public(), by)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(f.key(name), "PRIVATE KEY", secret); err != nil {
		return err
	}
	return writePEM(f.certificate(name), "CERTIFICATE", der)
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

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// credentials returns the credentials of the manager or of a worker.
func credentials(f folder, name string) (*grpc.Credentials, error) {
	return grpc.LoadCredentials(f.certificate(name), f.key(name), f.authority())
}
