package kubetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

// required is the environment variable that turns these tests on if its value is "required".
const required = "ORCHESTRATOR_KUBERNETES"

// Server is an API server. Its address stays the same when it is started again. Its methods fail the
// test when something fails. Only the test's goroutine may call them.
type Server struct {
	t       testing.TB
	dir     string
	bin     string
	etcd    *proctest.Process
	api     *proctest.Process
	stores  string // address of etcd
	addr    string
	client  *http.Client
	config  *tls.Config
	journal *proctest.Journal
}

// Account is a service account.
type Account struct {
	Namespace string
	TokenFile string
}

// admin is the token of a user who may do everything.
const admin = "admin-token"

// Start starts a server that runs until the end of the test. It skips the test unless the environment asks
// for it.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir(), bin: programs(t)}
	addrs := freeAddrs(t, 2)
	s.stores, s.addr = addrs[0], addrs[1]
	s.check(s.writeFiles())
	var err error
	s.journal, err = proctest.OpenJournal(filepath.Join(s.dir, "journal"), "test")
	s.check(err)
	s.etcd = &proctest.Process{T: t, Name: "etcd", Journal: s.journal, Command: []string{filepath.Join(s.bin, "etcd"), filepath.Join(s.dir, "etcd"), s.stores}}
	host, port, _ := net.SplitHostPort(s.addr)
	s.api = &proctest.Process{T: t, Name: "kube-apiserver", Journal: s.journal, Command: []string{
		filepath.Join(s.bin, "kube-apiserver"), "--etcd-servers=http://" + s.stores, "--secure-port=" + port, "--bind-address=" + host,
		"--advertise-address=" + host, "--cert-dir=" + filepath.Join(s.dir, "certs"), "--service-account-key-file=" + s.file("sa.key"),
		"--service-account-signing-key-file=" + s.file("sa.key"), "--service-account-issuer=https://localhost", "--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=RBAC", "--token-auth-file=" + s.file("tokens.csv"), "--disable-admission-plugins=ServiceAccount",
		"--endpoint-reconciler-type=none", "--shutdown-delay-duration=0s",
	}}
	s.etcd.Start()
	s.StartAPI()
	return s
}

// Required skips a test that takes long unless the environment asks for it.
func Required(t testing.TB) {
	t.Helper()
	if os.Getenv(required) != "required" {
		t.Skipf("takes minutes, and some of it a kube-apiserver, which tools/kube-apiserver/build builds: set %s=required", required)
	}
}

// programs returns the folder of the newest version of the programs.
func programs(t testing.TB) string {
	t.Helper()
	Required(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(cache, "orchestrator", "kube-apiserver", "*", "kube-apiserver"))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatal("not built: kube-apiserver, which tools/kube-apiserver/build builds")
	}
	return filepath.Dir(found[len(found)-1])
}

// freeAddrs returns n free addresses of 127.0.0.1, which the certificate of the server names.
func freeAddrs(t testing.TB, n int) []string {
	t.Helper()
	addrs := make([]string, n)
	for i := range addrs {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // at the end; otherwise the port could be chosen twice
		addrs[i] = l.Addr().String()
	}
	return addrs
}

func (s *Server) file(name string) string { return filepath.Join(s.dir, name) }

func (s *Server) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("kubetest: %v", err)
	}
}

// writeFiles writes the key of service accounts and the admin's token.
func (s *Server) writeFiles() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(s.file("sa.key"), text, 0o600); err != nil {
		return err
	}
	return os.WriteFile(s.file("tokens.csv"), []byte(admin+`,admin,admin,"system:masters"`+"\n"), 0o600)
}

// StartAPI starts the API server, if it was killed, and waits until it is ready.
func (s *Server) StartAPI() {
	s.t.Helper()
	s.api.Start()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for {
		select {
		case <-s.api.Exited():
			s.t.Fatalf("kube-apiserver has ended: %s", s.api.Output.Tail())
		case <-ctx.Done():
			s.t.Fatalf("kube-apiserver is not ready: %s", s.api.Output.Tail())
		case <-time.After(50 * time.Millisecond):
		}
		if s.client == nil {
			s.connect()
			continue
		}
		if text, err := s.request(ctx, http.MethodGet, "/readyz", nil); err == nil && text == "ok" {
			return
		}
	}
}

// connect makes the client, once the server has made its certificate.
func (s *Server) connect() {
	text, err := os.ReadFile(filepath.Join(s.dir, "certs", "apiserver.crt"))
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(text) {
		return
	}
	s.config = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	transport := &http.Transport{TLSClientConfig: s.config}
	s.client = &http.Client{Transport: transport}
	s.t.Cleanup(transport.CloseIdleConnections)
}

// URL returns the address of the server.
func (s *Server) URL() string { return "https://" + s.addr }

// TLS returns the client's side of TLS.
func (s *Server) TLS() *tls.Config { return s.config.Clone() }

// KillAPI kills the API server. StartAPI starts it again.
func (s *Server) KillAPI() { s.api.Kill() }

// Restart kills both servers, calls change with the data folder of etcd, and starts them again.
func (s *Server) Restart(change func(data string)) {
	s.t.Helper()
	s.api.Kill()
	s.etcd.Kill()
	change(filepath.Join(s.dir, "etcd"))
	s.etcd.Start()
	s.StartAPI()
}

// Pause stops the API server with SIGSTOP, and Resume continues it.
func (s *Server) Pause() { s.api.Pause() }

// Resume continues the API server.
func (s *Server) Resume() { s.api.Resume() }

// Do makes a request as the admin, and returns the answer.
func (s *Server) Do(method, path string, body any) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	text, err := s.request(ctx, method, path, body)
	s.check(err)
	return text
}

func (s *Server) request(ctx context.Context, method, path string, body any) (string, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL()+path, bytes.NewReader(text))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+admin)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %d: %s", method, path, resp.StatusCode, answer)
	}
	return string(answer), err
}

// Verbs are those of the Role that replicas need.
var Verbs = []string{"get", "list", "watch", "create", "update", "delete"}

// Account makes a namespace with a service account, for which a Role permits verbs on Leases.
func (s *Server) Account(verbs ...string) Account {
	s.t.Helper()
	a := Account{Namespace: "ns-" + strings.ToLower(rand.Text()[:10])}
	a.TokenFile = s.file(a.Namespace + ".token")
	type object = map[string]any
	named := func(name string, more object) object {
		o := object{"metadata": object{"name": name}}
		maps.Copy(o, more)
		return o
	}
	const rbac, group = "/apis/rbac.authorization.k8s.io/v1/namespaces/", "rbac.authorization.k8s.io"
	s.Do(http.MethodPost, "/api/v1/namespaces", named(a.Namespace, nil))
	s.Do(http.MethodPost, "/api/v1/namespaces/"+a.Namespace+"/serviceaccounts", named("pollers", nil))
	s.Do(http.MethodPost, rbac+a.Namespace+"/roles", named("pollers", object{"rules": []object{{
		"apiGroups": []string{"coordination.k8s.io"}, "resources": []string{"leases"}, "verbs": verbs,
	}}}))
	s.Do(http.MethodPost, rbac+a.Namespace+"/rolebindings", named("pollers", object{
		"roleRef":  object{"apiGroup": group, "kind": "Role", "name": "pollers"},
		"subjects": []object{{"kind": "ServiceAccount", "name": "pollers", "namespace": a.Namespace}},
	}))
	s.Renew(a)
	return a
}

// Renew writes a new token of a service account to its file.
func (s *Server) Renew(a Account) {
	s.t.Helper()
	text := s.Do(http.MethodPost, "/api/v1/namespaces/"+a.Namespace+"/serviceaccounts/pollers/token", map[string]any{"spec": map[string]any{"expirationSeconds": 600}})
	var answer struct{ Status struct{ Token string } }
	s.check(json.Unmarshal([]byte(text), &answer))
	s.check(os.WriteFile(a.TokenFile, []byte(answer.Status.Token), 0o600))
}
