package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/kubetest"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/backendtest"
	"github.com/f8949c05/orchestrator/replica/kubernetes"
)

// The kit, as a service account that may do what its Role says, and nothing else.
func TestConformance(t *testing.T) {
	s := kubetest.Start(t)
	a := s.Account(kubetest.Verbs...)
	backendtest.Run(t, func(t *testing.T) backendtest.Store {
		name := fmt.Sprint("pollers-", tables.Add(1))
		return backendtest.Store{
			Open:     func() replica.Backend { return open(t, configOf(s, a), name) },
			Recreate: func() { require.NotZero(t, drop(t, s, a, func(n string) bool { return strings.HasPrefix(n, name) })) },
			Drop: func(id uint64) {
				require.NotZero(t, drop(t, s, a, func(n string) bool { return n == fmt.Sprintf("%s-%016x-orders", name, id) }))
			},
		}
	})
}

// configOf returns how a service account reaches a server.
func configOf(s *kubetest.Server, a kubetest.Account) kubernetes.Config {
	return kubernetes.Config{URL: s.URL(), Namespace: a.Namespace, TokenFile: a.TokenFile, TLS: s.TLS()}
}

func leases(a kubetest.Account) string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + a.Namespace + "/leases"
}

// drop deletes the Leases whose names match, by hand.
func drop(t testing.TB, s *kubetest.Server, a kubetest.Account, match func(name string) bool) (dropped int) {
	t.Helper()
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	require.NoError(t, json.Unmarshal([]byte(s.Do(http.MethodGet, leases(a), nil)), &list))
	for _, l := range list.Items {
		if match(l.Metadata.Name) {
			s.Do(http.MethodDelete, leases(a)+"/"+url.PathEscape(l.Metadata.Name), nil)
			dropped++
		}
	}
	return dropped
}

func TestFleet_OnAServer(t *testing.T) {
	s := kubetest.Start(t)
	testFleet(t, configOf(s, s.Account(kubetest.Verbs...)), 100)
}

// The API server is paused and killed, its store set back, and the token renewed. Nothing runs twice.
func TestFaults_OnAServer(t *testing.T) {
	s := kubetest.Start(t)
	account := s.Account(kubetest.Verbs...)
	f := newFleet(t, configOf(s, account), 60)
	a, b, c := f.start("a"), f.start("b"), f.start("c")
	f.await("cold start", 4*lease, a, b, c)
	f.calm("before", time.Second)
	s.Renew(account)
	s.Pause()
	f.calm("paused", 3*time.Second)
	s.Resume()
	f.calm("continues", 3*time.Second)

	s.Pause()
	f.wait("paused for more than a lease", 3*lease, func() bool {
		_, all := f.share("")
		return all == 0
	})
	s.Resume()
	f.await("continues", 3*lease, a, b, c)

	s.KillAPI()
	s.StartAPI()
	f.await("killed", 3*lease, a, b, c)

	saved := filepath.Join(t.TempDir(), "saved")
	s.Restart(func(data string) {
		require.NoError(t, os.CopyFS(saved, os.DirFS(filepath.Join(data, "member"))))
	})
	f.await("both killed", 3*lease, a, b, c)
	d := f.start("d")
	f.await("d joins", lease, a, b, c, d)
	f.leave(a)
	f.await("a has left", lease, b, c, d)
	s.Restart(func(data string) {
		member := filepath.Join(data, "member")
		require.NoError(t, os.RemoveAll(member))
		require.NoError(t, os.CopyFS(member, os.DirFS(saved)))
	})
	f.await("set back", 5*lease, b, c, d)
	f.calm("afterwards", 2*lease)
	require.Contains(t, f.log.String(), "set back")
}
