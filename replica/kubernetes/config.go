package kubernetes

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator/replica"
)

// Config says how to reach an API server, and in which namespace the Leases are.
type Config struct {
	// URL is that of the API server, such as https://10.0.0.1:443.
	URL string
	// Namespace is that of the Leases. It must exist.
	Namespace string
	// TokenFile has the token of each request. It is read each time, because tokens are renewed.
	// Empty: Token is the token. Both empty: requests have no token.
	TokenFile, Token string
	// TLS is the client's side of TLS. Nil: the certificate authorities of the system.
	TLS *tls.Config
}

// Option is an option of [New], [InCluster] and [Kubeconfig].
type Option func(*Table)

// WithLogger sets the logger. The default is slog.Default(). A table logs a warning if acknowledged
// data is lost.
func WithLogger(l *slog.Logger) Option { return func(t *Table) { t.log = l } }

// New returns the table of a name. All replicas of a service give the same name, others another
// one. A bad argument is an error of all calls.
//
// New does not connect. A table is for one replica, which closes it.
func New(c Config, name string, opts ...Option) *Table { return newTable(c, nil, name, opts) }

// InCluster is [New] for a pod: in its namespace, with the token of its service account.
func InCluster(name string, opts ...Option) *Table {
	c, err := inCluster(os.Getenv, "/var/run/secrets/kubernetes.io/serviceaccount")
	return newTable(c, err, name, opts)
}

// Kubeconfig is [New] for people: with the server, the namespace and the credentials of a kubeconfig in
// JSON that has only the current context, which kubectl writes:
//
//	kubectl config view --raw --minify --flatten -o json > FILE
//
// Credentials that a program prints (exec) are not read. For these, and without a file, run kubectl
// proxy and give [New] the URL http://127.0.0.1:8001.
func Kubeconfig(file, name string, opts ...Option) *Table {
	c, err := kubeconfig(file)
	if err != nil {
		err = fmt.Errorf("kubeconfig %s: %w", file, err)
	}
	return newTable(c, err, name, opts)
}

func newTable(c Config, err error, name string, opts []Option) *Table {
	n := namesOf(name)
	t := &Table{
		name: name, names: n, client: newClient(c), cache: newCache(n), log: slog.Default(), err: err,
		busy: make(chan struct{}, 1), streams: make(map[scope]*stream), marked: make(map[uint64]time.Time),
	}
	bad := slices.ContainsFunc(opts, func(o Option) bool { return o == nil })
	for _, opt := range opts {
		if !bad {
			opt(t)
		}
	}
	if bad || t.log == nil || name == "" || err == nil && (c.URL == "" || c.Namespace == "") {
		t.err = errors.Join(err, errors.New("it needs a URL, a namespace, a name, a logger and no nil option"))
	}
	if t.err != nil {
		t.err = fmt.Errorf("%w: %w", replica.ErrInvalid, t.err)
	}
	return t
}

// inCluster reads what a pod is given in its environment and in a folder.
func inCluster(env func(string) string, dir string) (c Config, err error) {
	host, port := env("KUBERNETES_SERVICE_HOST"), env("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return c, errors.New("this is no pod, because KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: see Kubeconfig")
	}
	c.URL, c.TokenFile = "https://"+net.JoinHostPort(host, port), filepath.Join(dir, "token")
	namespace, err := os.ReadFile(filepath.Join(dir, "namespace"))
	authority, err2 := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err = cmp.Or(err, err2); err != nil {
		return c, fmt.Errorf("the pod has no token, see automountServiceAccountToken of its service account: %w", err)
	}
	c.Namespace = strings.TrimSpace(string(namespace))
	c.TLS, err = tlsOf(authority, nil, nil)
	return c, err
}

// tlsOf returns the client's side of TLS by files in PEM; empty ones are left out.
func tlsOf(authority, certificate, key []byte) (c *tls.Config, err error) {
	c = &tls.Config{MinVersion: tls.VersionTLS12}
	if len(authority) > 0 {
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(authority) {
			return nil, errors.New("the certificate authority is no certificate in PEM")
		}
	}
	if len(certificate) > 0 {
		c.Certificates = make([]tls.Certificate, 1)
		c.Certificates[0], err = tls.X509KeyPair(certificate, key)
	}
	return c, err
}

// kubeconfigFile is a kubeconfig with one context.
type kubeconfigFile struct {
	Contexts []struct {
		Context struct{ Namespace string }
	}
	Clusters []struct {
		Cluster struct {
			Server     string
			Authority  []byte `json:"certificate-authority-data"`
			ServerName string `json:"tls-server-name"`
			Insecure   bool   `json:"insecure-skip-tls-verify"`
		}
	}
	Users []struct {
		User struct {
			Token, TokenFile string
			Certificate      []byte `json:"client-certificate-data"`
			Key              []byte `json:"client-key-data"`
			Exec             *struct{ Command string }
		}
	}
}

func kubeconfig(file string) (c Config, err error) {
	var f kubeconfigFile
	text, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	if json.Unmarshal(text, &f) != nil || len(f.Contexts) != 1 || len(f.Clusters) != 1 || len(f.Users) != 1 {
		return c, errors.New("it is not in JSON, or has not one context, write another one: kubectl config view --raw --minify --flatten -o json")
	}
	cluster, user := f.Clusters[0].Cluster, f.Users[0].User
	if user.Exec != nil {
		return c, fmt.Errorf("the program %s prints the credentials: run kubectl proxy, and give New the URL http://127.0.0.1:8001", user.Exec.Command)
	}
	c = Config{URL: cluster.Server, Namespace: cmp.Or(f.Contexts[0].Context.Namespace, "default"), Token: user.Token, TokenFile: user.TokenFile}
	if c.TLS, err = tlsOf(cluster.Authority, user.Certificate, user.Key); err == nil {
		c.TLS.ServerName, c.TLS.InsecureSkipVerify = cluster.ServerName, cluster.Insecure
	}
	return c, err
}
