package main

// How this process gets into an etcd that asks who it is.

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/etcd"
)

// passwordEnv is where the password for etcd is looked for, so that it does not
// show in the list of processes.
const passwordEnv = "ALLOCATOR_ETCD_PASSWORD"

// access is what an etcd may ask for.
type access struct {
	ca, cert, key string // files in PEM
	user          string
	passwordFile  string
	inClear       bool // the password may go unencrypted to other machines
}

func (a *access) flags(f *flag.FlagSet) {
	f.StringVar(&a.ca, "etcd-ca", "", "a `file` with the authorities that etcd's certificate is from (default: the system's)")
	f.StringVar(&a.cert, "etcd-cert", "", "a `file` with the certificate to show to etcd")
	f.StringVar(&a.key, "etcd-key", "", "a `file` with its key")
	f.StringVar(&a.user, "etcd-user", "", "the user to be at etcd")
	f.StringVar(&a.passwordFile, "etcd-password-file", "", "a `file` with its password (default: $"+passwordEnv+")")
	f.BoolVar(&a.inClear, "etcd-password-in-clear", false, "send the password unencrypted, by http, to other machines too")
}

// config returns how to reach etcd.
func (a access) config(endpoints []string) (clientv3.Config, error) {
	c := etcd.ClientConfig(endpoints...)
	var err error
	if c.TLS, err = a.tls(); err != nil {
		return c, err
	}
	for _, endpoint := range endpoints {
		if c.TLS != nil && strings.HasPrefix(strings.ToLower(endpoint), "http://") {
			return c, fmt.Errorf("-etcd: %s is in the clear, but there is a certificate: it has to be https", endpoint)
		}
	}
	if a.user == "" {
		return c, nil
	}
	if open := unencrypted(endpoints, c.TLS != nil); open != "" && !a.inClear {
		return c, fmt.Errorf("-etcd-user: the password would go to %s unencrypted: use https, or -etcd-password-in-clear if that network is yours alone", open)
	}
	c.Username = a.user
	c.Password, err = a.password()
	return c, err
}

// unencrypted returns the first endpoint on another machine to which etcd's client
// would send a password unencrypted; none if it would not. The client encrypts to
// all endpoints or to none, as the scheme of the first one says.
func unencrypted(endpoints []string, certificate bool) string {
	scheme, _, found := strings.Cut(strings.ToLower(endpoints[0]), "://")
	if found && scheme == "https" || certificate && scheme != "http" {
		return ""
	}
	for _, endpoint := range endpoints {
		if !isLoopback(hostOf(endpoint)) {
			return endpoint
		}
	}
	return ""
}

// hostOf returns an endpoint without its scheme.
func hostOf(endpoint string) string {
	if _, address, found := strings.Cut(endpoint, "://"); found {
		return address
	}
	return endpoint
}

// isLoopback reports whether a host and port are this machine's, and reachable
// from this machine alone.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// tls returns nil where nothing is asked for: an address with https then goes
// by the system's authorities.
func (a access) tls() (*tls.Config, error) {
	if a.ca == "" && a.cert == "" && a.key == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.ca != "" {
		text, err := os.ReadFile(a.ca)
		if err != nil {
			return nil, fmt.Errorf("-etcd-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("-etcd-ca: %s holds no certificate in PEM", a.ca)
		}
	}
	if (a.cert == "") != (a.key == "") {
		return nil, errors.New("-etcd-cert and -etcd-key: one is of no use without the other")
	}
	if a.cert != "" {
		pair := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(a.cert, a.key)
			return &pair, err
		}
		if _, err := pair(nil); err != nil {
			return nil, fmt.Errorf("-etcd-cert: %w", err)
		}
		c.GetClientCertificate = pair // read at each connection: files are replaced before they expire
	}
	return c, nil
}

func (a access) password() (string, error) {
	password := os.Getenv(passwordEnv)
	if a.passwordFile != "" {
		text, err := os.ReadFile(a.passwordFile)
		if err != nil {
			return "", fmt.Errorf("-etcd-password-file: %w", err)
		}
		password = strings.TrimRight(string(text), "\r\n")
	}
	if password == "" {
		return "", errors.New("-etcd-user: there is no password in $" + passwordEnv + " nor in -etcd-password-file")
	}
	return password, nil
}
