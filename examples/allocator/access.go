package main

// Access to an etcd with TLS and users.

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// passwordEnv is the environment variable with the password for etcd. A flag would
// show the password in the process list.
const passwordEnv = "ALLOCATOR_ETCD_PASSWORD"

// access holds the credentials for an etcd.
type access struct {
	ca, cert, key string // PEM files
	user          string
	passwordFile  string
	inClear       bool // allow sending the password unencrypted to other machines
}

func (a *access) flags(f *flag.FlagSet) {
	f.StringVar(&a.ca, "etcd-ca", "", "the PEM `file` with the authorities of etcd's certificate (default: the system's)")
	f.StringVar(&a.cert, "etcd-cert", "", "the PEM `file` with the client certificate for etcd")
	f.StringVar(&a.key, "etcd-key", "", "the PEM `file` with the key of the client certificate")
	f.StringVar(&a.user, "etcd-user", "", "the etcd `user`")
	f.StringVar(&a.passwordFile, "etcd-password-file", "", "the `file` with the user's password (default: $"+passwordEnv+")")
	f.BoolVar(&a.inClear, "etcd-password-in-clear", false, "allow sending the password unencrypted, by http, to other machines")
}

// config returns the configuration of etcd's client. The client notices within seconds that a
// connection is cut, and that etcd is back. It does not log, because the callers get its errors.
func (a access) config(endpoints []string) (clientv3.Config, error) {
	again := backoff.DefaultConfig
	again.MaxDelay = time.Second // by default two minutes
	c := clientv3.Config{
		Endpoints: endpoints, DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: time.Second})},
		Logger:      zap.NewNop(),
	}
	var err error
	if c.TLS, err = a.tls(); err != nil {
		return c, err
	}
	for _, endpoint := range endpoints {
		if c.TLS != nil && strings.HasPrefix(strings.ToLower(endpoint), "http://") {
			return c, fmt.Errorf("-etcd: %s is unencrypted, but a certificate is given: use https", endpoint)
		}
	}
	if a.user == "" {
		return c, nil
	}
	if open := unencrypted(endpoints, c.TLS != nil); open != "" && !a.inClear {
		return c, fmt.Errorf("-etcd-user: the password would go to %s unencrypted: use https, or -etcd-password-in-clear if you trust the network", open)
	}
	c.Username = a.user
	if c.Password, err = secret("-etcd-password-file", a.passwordFile, passwordEnv); err == nil && c.Password == "" {
		err = errors.New("-etcd-user: no password in $" + passwordEnv + " or -etcd-password-file")
	}
	return c, err
}

// unencrypted returns the first endpoint on another machine to which etcd's client
// would send a password unencrypted, or "". The client encrypts either all
// connections or none, depending on the scheme of the first endpoint.
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

// isLoopback reports whether the address is a loopback address, reachable from this
// machine only.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// tls returns nil if no files are given. The system's authorities then apply to https. The certificate
// is read at each connection, because it may be renewed.
func (a access) tls() (*tls.Config, error) {
	if a.ca == "" && a.cert == "" && a.key == "" {
		return nil, nil
	}
	c, err := transport.TLSInfo{TrustedCAFile: a.ca, CertFile: a.cert, KeyFile: a.key}.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("-etcd-ca %s, -etcd-cert %s, -etcd-key %s: %w", a.ca, a.cert, a.key, err)
	}
	return c, nil
}

// secret returns what a file holds, or else a variable of the environment, without spaces around it.
func secret(flag, file, env string) (string, error) {
	text := os.Getenv(env)
	if file != "" {
		read, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("%s: %w", flag, err)
		}
		if text = string(read); strings.TrimSpace(text) == "" {
			return "", fmt.Errorf("%s: %s is empty", flag, file)
		}
	}
	return strings.TrimSpace(text), nil
}
