package api_test

// The test doubles of the handlers: tasks in memory, fixed workers, and requests
// that lead to every possible answer.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/examples/allocator/api"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/etcd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stage configures a handler.
type stage struct {
	token string
	down  bool // Registry and Cluster fail
	most  int  // maximum content of the store; 0: unlimited
	items []etcd.Item
}

type standing struct {
	config  api.Config
	handler http.Handler
	tasks   *memory
}

func newStage(t *testing.T, s stage) *standing {
	t.Helper()
	tasks := &memory{down: s.down, most: s.most, items: map[string]etcd.Item{}}
	for _, item := range s.items {
		tasks.set(item)
	}
	c := api.Config{
		Registry: tasks,
		Cluster:  fleet{down: s.down},
		Token:    s.token,
		Hosts:    []string{"example.com"}, // the Host of a request from httptest
		Admin: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
			_, _ = io.WriteString(w, "up 1\n")
		}),
	}
	return &standing{tasks: tasks, config: c, handler: api.New(c)}
}

// ask sends a request with headers, given as names and values in turn. It returns
// the answer and its body.
func (s *standing) ask(t *testing.T, method, target, body string, header ...string) (*http.Response, string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	s.handler.ServeHTTP(recorder, r)
	text, err := io.ReadAll(recorder.Result().Body)
	require.NoError(t, err)
	return recorder.Result(), string(text)
}

var errDown = errors.New("down")

// memory implements Registry.
type memory struct {
	down   bool
	most   int
	mu     sync.Mutex
	items  map[string]etcd.Item
	writes int64
}

// newItem returns an item that one worker is to run.
func newItem(id, content string, instances int) etcd.Item {
	return etcd.Item{Task: replica.Task{Name: id, Instances: instances}, Content: []byte(content)}
}

func (m *memory) lock() (func(), error) {
	if m.down {
		return nil, errDown
	}
	m.mu.Lock()
	return m.mu.Unlock, nil
}

// set stores an item with a new revision.
func (m *memory) set(item etcd.Item) {
	m.writes++
	item.Revision = m.writes
	m.items[item.Name] = item
}

func (m *memory) CompareAndPut(_ context.Context, items ...etcd.Item) (int, error) {
	unlock, err := m.lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	switch item := items[0]; {
	case m.most > 0 && len(item.Content) > m.most:
		return 0, fmt.Errorf("put %s: %w", item.Name, rpctypes.ErrRequestTooLarge)
	case m.items[item.Name].Revision != item.Revision:
		return 0, etcd.ErrChanged
	default:
		m.set(item)
		return 1, nil
	}
}

func (m *memory) CompareAndDelete(_ context.Context, items ...etcd.Item) (int, error) {
	unlock, err := m.lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	if m.items[items[0].Name].Revision != items[0].Revision {
		return 0, etcd.ErrChanged
	}
	delete(m.items, items[0].Name)
	return 1, nil
}

func (m *memory) Get(_ context.Context, id string) (etcd.Item, error) {
	unlock, err := m.lock()
	if err != nil {
		return etcd.Item{}, err
	}
	defer unlock()
	item, there := m.items[id]
	if !there {
		return etcd.Item{}, fmt.Errorf("get %s: %w", id, etcd.ErrNotFound)
	}
	return item, nil
}

func (m *memory) List(_ context.Context, after string, limit int) ([]etcd.Item, error) {
	unlock, err := m.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	var found []etcd.Item
	for id, item := range m.items {
		if id > after {
			found = append(found, etcd.Item{Task: item.Task, Revision: item.Revision})
		}
	}
	slices.SortFunc(found, func(a, b etcd.Item) int { return cmp.Compare(a.Name, b.Name) })
	return found[:min(limit, len(found))], nil
}

// fleet implements Cluster: worker a runs each task whose id begins with a, worker b
// is idle.
type fleet struct{ down bool }

func (fleet) Owners(id string) []string {
	if strings.HasPrefix(id, "a") {
		return []string{"a"}
	}
	return nil
}

func (fleet) Waiting(_ string, missing int) []api.Waiting {
	return []api.Waiting{{Instances: missing, Reason: "no other worker"}}
}

func (f fleet) Fleet() (api.Fleet, error) {
	workers := []api.Worker{{Name: "a", State: "ready", Tasks: []string{"a1"}}, {Name: "b", State: "draining", Tasks: []string{}}}
	return api.Fleet{Workers: workers, Leader: "b", Epoch: 7}, f.Ready()
}

func (f fleet) Ready() error {
	if f.down {
		return errDown
	}
	return nil
}

// call is a request and its expected status.
type call struct {
	method, target, body string
	header               [2]string
	slow                 bool // the content never arrives
	status               int
}

func (c call) request() *http.Request {
	var body io.Reader = strings.NewReader(c.body)
	if c.slow {
		body = late{}
	}
	r := httptest.NewRequest(c.method, c.target, body) //nolint:noctx // the test that sends it has a context
	switch c.header[0] {
	case "":
	case "Host":
		r.Host = c.header[1]
	default:
		r.Header.Set(c.header[0], c.header[1])
	}
	return r
}

// late is a content that exceeds its deadline.
type late struct{}

func (late) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

var (
	foreign = [2]string{"Origin", "http://elsewhere.example"}
	rebound = [2]string{"Host", "elsewhere.example"}
	old     = [2]string{"If-Match", `"v0"`}
	star    = [2]string{"If-Match", "*"}
	zipped  = [2]string{"Content-Encoding", "gzip"}
	big     = strings.Repeat("x", api.MaxContent+1)
)

// stories cover every status of every operation.
var stories = []struct {
	name  string
	stage stage
	calls []call
}{
	{"no failures", stage{items: []etcd.Item{newItem("a1", "text", 1), newItem("b/ü", "\xff\x00", 2)}}, []call{
		{method: "GET", target: "/work", status: 200},
		{method: "GET", target: "/work?after=a1", status: 200},
		{method: "GET", target: "/work/a1", status: 200},
		{method: "GET", target: "/work/b%2F%C3%BC", status: 200},
		{method: "GET", target: "/work/none", status: 404},
		{method: "GET", target: "/elsewhere", status: 404},
		{method: "GET", target: "/work?aftr=a1", status: 400},
		{method: "GET", target: "/work?after=a1&after=a2", status: 400},
		{method: "GET", target: "/work?after=%zz", status: 400},
		{method: "GET", target: "/work/a1?after=a", status: 400},
		{method: "GET", target: "/workers?after=a", status: 400},
		{method: "GET", target: "/work", header: rebound, status: 421},
		{method: "POST", target: "/work", header: rebound, status: 421},
		{method: "GET", target: "/work/a1", header: rebound, status: 421},
		{method: "PUT", target: "/work/a1", header: rebound, status: 421},
		{method: "DELETE", target: "/work/a1", header: rebound, status: 421},
		{method: "GET", target: "/workers", header: rebound, status: 421},
		{method: "GET", target: "/metrics", header: rebound, status: 421},
		{method: "GET", target: "/healthz", header: rebound, status: 200},
		{method: "GET", target: "/readyz", header: rebound, status: 200},
		{method: "PATCH", target: "/work", status: 405},
		{method: "POST", target: "/work?instances=3", body: "new", status: 201},
		{method: "POST", target: "/work", status: 201},
		{method: "POST", target: "/work?instances=-1", status: 400},
		{method: "POST", target: "/work?requires=gpu,!spot&max_per_zone=1&weight=5", status: 201},
		{method: "POST", target: "/work?requires=gpu,,spot", status: 400},
		{method: "PUT", target: "/work/a1?weight=-1", status: 400},
		{method: "PUT", target: "/work/a1?weight=7&requires=gpu", status: 200},
		{method: "GET", target: "/work/a1", status: 200},
		{method: "POST", target: "/work", header: foreign, status: 403},
		{method: "POST", target: "/work", slow: true, status: 408},
		{method: "POST", target: "/work", body: big, status: 413},
		{method: "POST", target: "/work", header: zipped, status: 415},
		{method: "PUT", target: "/work/a1", body: "changed", status: 200},
		{method: "PUT", target: "/work/a2", body: "\xff", status: 201},
		{method: "PUT", target: "/work/a2?instances=2", status: 200},
		{method: "PUT", target: "/work/a3?instances=2", status: 404},
		{method: "PUT", target: "/work/a3?instances=2", header: star, status: 412},
		{method: "PUT", target: "/work/a2", body: "x", header: old, status: 412},
		{method: "PUT", target: "/work/a2", body: "x", header: star, status: 200},
		{method: "PUT", target: "/work/a2", status: 400},
		{method: "PUT", target: "/work/a2?instance=3", body: "x", status: 400},
		{method: "PUT", target: "/work/a2?instances=many", status: 400},
		{method: "PUT", target: "/work/%FF", status: 400},
		{method: "PUT", target: "/work/%2E", status: 400},
		{method: "PUT", target: "/work/%2e%2E", status: 400},
		{method: "PUT", target: "/work/a2", header: foreign, status: 403},
		{method: "PUT", target: "/work/a2", slow: true, status: 408},
		{method: "PUT", target: "/work/a2", body: big, status: 413},
		{method: "PUT", target: "/work/a2", header: zipped, status: 415},
		{method: "DELETE", target: "/work/a2", header: foreign, status: 403},
		{method: "DELETE", target: "/work/a2", header: old, status: 412},
		{method: "DELETE", target: "/work/a2?force", status: 400},
		{method: "DELETE", target: "/work/a2", status: 204},
		{method: "DELETE", target: "/work/a2", status: 404},
		{method: "GET", target: "/workers", status: 200},
		{method: "GET", target: "/healthz", status: 200},
		{method: "GET", target: "/readyz", status: 200},
		{method: "GET", target: "/metrics", status: 200},
	}},
	{"a store with a lower limit than the API", stage{most: 3}, []call{
		{method: "POST", target: "/work", body: "four", status: 413},
		{method: "PUT", target: "/work/a", body: "four", status: 413},
		{method: "PUT", target: "/work/a", body: "one", status: 201},
	}},
	{"the store fails", stage{down: true}, []call{
		{method: "GET", target: "/work", status: 503},
		{method: "POST", target: "/work", status: 503},
		{method: "GET", target: "/work/a", status: 503},
		{method: "PUT", target: "/work/a", body: "x", status: 503},
		{method: "DELETE", target: "/work/a", status: 503},
		{method: "GET", target: "/workers", status: 503},
		{method: "GET", target: "/readyz", status: 503},
		{method: "GET", target: "/healthz", status: 200},
	}},
	{"with a token", stage{token: "secret"}, []call{
		{method: "GET", target: "/work", status: 401},
		{method: "POST", target: "/work", status: 401},
		{method: "GET", target: "/work/a", status: 401},
		{method: "PUT", target: "/work/a", status: 401},
		{method: "GET", target: "/work", header: rebound, status: 401},
		{method: "DELETE", target: "/work/a", status: 401},
		{method: "GET", target: "/workers", status: 401},
		{method: "GET", target: "/metrics", status: 401},
		{method: "GET", target: "/healthz", status: 200},
		{method: "GET", target: "/readyz", status: 200},
		{method: "GET", target: "/work", header: [2]string{"Authorization", "bearer secret"}, status: 200},
		{method: "GET", target: "/work", header: [2]string{"Authorization", "Bearer secret2"}, status: 401},
		{method: "GET", target: "/work", header: [2]string{"Authorization", "Basic secret"}, status: 401},
	}},
}
