package identity

import (
	"testing"
)

// FuzzIdentities parses arbitrary URIs. A URI that identifies a worker must be the
// one written for its name, and every name must have a URI.
func FuzzIdentities(f *testing.F) {
	for _, uri := range []string{"", ManagerURI, WorkerURI("w1"), WorkerURI("a/b%\x00\xff"), workerPrefix, workerPrefix + "%zz", workerPrefix + "%77"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		for _, p := range PrincipalsOf([]string{uri}) {
			if p.Role == RoleManager {
				if uri != ManagerURI {
					t.Fatalf("%q is a manager", uri)
				}
				continue
			}
			if uri != WorkerURI(p.Name) {
				t.Fatalf("%q identifies %v, whose URI is %q", uri, p, WorkerURI(p.Name))
			}
		}
		if CheckName("worker", uri) != nil {
			return
		}
		if got := PrincipalsOf([]string{WorkerURI(uri)}); len(got) != 1 || got[0] != (Principal{RoleWorker, uri}) {
			t.Fatalf("name %q identifies %v", uri, got)
		}
	})
}
