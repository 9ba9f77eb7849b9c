package main

// The walk-through of README.md and more, with real processes on a real etcd. The
// processes run this test binary.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

const runEnv = "ALLOCATOR_TEST_RUN"

func TestMain(m *testing.M) {
	if os.Getenv(runEnv) != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(4) // the test process has ended
		}()
		main()
		os.Exit(0)
	}
	proctest.SetParallel(5) // what is parallel mostly waits
	goleak.VerifyTestMain(m)
}

const (
	lease    = 2 * time.Second // the shortest that etcd grants
	interval = time.Second
	// timeout is the time limit for immediate events on a busy machine.
	timeout = 20 * time.Second
)

// work is an item in the API's answers.
type work struct {
	ID, Content string
	Workers     []string
}

// workers is the answer of GET /workers.
type workers struct {
	Workers []struct {
		Name  string
		Tasks []string
	}
	Leader string
}

func TestWalkThrough(t *testing.T) {
	a := start(t, "a", "-embed", "127.0.0.1:0", "-data", t.TempDir())
	endpoint, _, _ := strings.Cut(strings.TrimPrefix(a.line("etcd serves at "), "etcd serves at "), ",")

	// Four items.
	var ids []string
	for i := range 4 {
		var posted work
		require.Equal(t, http.StatusCreated, a.ask("POST", "/work", fmt.Sprintf("item %d", i), &posted))
		ids = append(ids, posted.ID)
	}
	a.line("a leads, epoch")
	a.shares(4)

	// What etcd holds is readable with any tool.
	client, err := clientv3.New(etcd.ClientConfig(endpoint))
	require.NoError(t, err)
	defer client.Close()
	registry, active, loads := held(t, client, "/work/registry/"), held(t, client, "/work/active/"), held(t, client, "/work/workers/")
	for i, id := range ids {
		require.Equal(t, fmt.Sprintf("item %d", i), registry["/work/registry/"+id])
		require.Contains(t, active, "/work/active/a/"+id)
	}
	require.Equal(t, map[string]string{"/work/workers/a": "000004"}, loads)

	// Two more take their shares, and nothing else moves.
	b := start(t, "b", "-etcd", endpoint)
	c := start(t, "c", "-etcd", endpoint)
	b.shares(2, 1, 1)
	require.LessOrEqual(t, a.count("stopped ")+b.count("stopped "), 3, "two moves, or three if b and c joined in different terms")

	// One process leaves with SIGTERM: its share moves.
	c.signal(syscall.SIGTERM)
	c.line("left")
	require.NoError(t, c.ended())
	a.line("c left after draining")
	a.shares(2, 2)

	// New content reaches the running task.
	changed := b.runs()[0]
	stopped := b.count("stopped ")
	require.Equal(t, http.StatusOK, a.ask("PUT", "/work/"+changed, "changed", nil))
	require.Contains(t, b.line("updated "+changed), `"changed"`)
	require.Equal(t, stopped, b.count("stopped "))

	// One item of each process is deleted, and stops.
	for _, p := range []*process{a, b} {
		id := p.runs()[0]
		if id == changed {
			id = p.runs()[1]
		}
		stopped := p.count("stopped " + id)
		require.Equal(t, http.StatusNoContent, a.ask("DELETE", "/work/"+id, "", nil))
		require.Equal(t, http.StatusNotFound, a.ask("DELETE", "/work/"+id, "", nil))
		p.until(func() bool { return p.count("stopped "+id) > stopped }, func() string { return id + " was not stopped" })
	}
	a.shares(1, 1)

	// One process is killed: everything runs again within its lease and a term.
	waited := proctest.MeasureWaiting(t)
	b.signal(syscall.SIGKILL)
	killed := time.Now()
	require.Error(t, b.ended())
	a.line(`: "changed"`) // the content of the task that starts on a
	t.Logf("started elsewhere %v after the kill", time.Since(killed).Round(time.Millisecond))
	require.Less(t, time.Since(killed)-waited(), lease+interval+time.Second, "one second more for etcd's clock")
	a.line("b left: lease expired")
	a.shares(2)

	a.signal(syscall.SIGTERM)
	require.NoError(t, a.ended())
}

// The death of the leader affects only its own tasks.
func TestLeaderKilled(t *testing.T) {
	server := startEtcd(t, embed.Config{})
	fleet := map[string]*process{}
	for _, name := range []string{"a", "b", "c"} {
		fleet[name] = start(t, name, "-etcd", server.Endpoint())
	}
	for _, p := range fleet {
		for name := range fleet {
			p.line(name + " joined")
		}
	}
	for i := range 6 {
		require.Equal(t, http.StatusCreated, fleet["a"].ask("PUT", fmt.Sprintf("/work/item%d", i), "x", nil))
	}
	fleet["a"].shares(2, 2, 2)

	var before workers
	require.Equal(t, http.StatusOK, fleet["a"].ask("GET", "/workers", "", &before))
	leader := fleet[before.Leader]
	lost := leader.runs()
	waited := proctest.MeasureWaiting(t)
	leader.signal(syscall.SIGKILL)
	killed := time.Now()
	delete(fleet, before.Leader)
	for _, p := range fleet {
		p.shares(3, 3)
	}
	t.Logf("all run again %v after the leader was killed", time.Since(killed).Round(time.Millisecond))
	require.Less(t, time.Since(killed)-waited(), lease+interval+time.Second)
	var moved int
	for _, p := range fleet {
		require.Zero(t, p.count("stopped "), "a healthy task was stopped")
		for _, id := range lost {
			moved += p.count("started " + id)
		}
	}
	require.Equal(t, len(lost), moved)
	require.Error(t, leader.ended())
}

func TestRestart_NothingIsLost(t *testing.T) {
	t.Parallel() // it takes any time
	folder := t.TempDir()
	const id, content = "a%2F%C3%BC%0A", "\x00\xff any bytes"
	first := start(t, "a", "-embed", "127.0.0.1:0", "-data", folder)
	require.Equal(t, http.StatusCreated, first.ask("PUT", "/work/"+id, content, nil))
	first.shares(1)
	first.signal(syscall.SIGKILL)
	require.Error(t, first.ended())

	second := start(t, "a", "-embed", "127.0.0.1:0", "-data", folder)
	second.shares(1)
	second.line(`started "a/ü\n": assigned here`) // on one line
	var got struct {
		ID, Encoding string
		Content      []byte
	}
	require.Equal(t, http.StatusOK, second.ask("GET", "/work/"+id, "", &got))
	require.Equal(t, "a/ü\n", got.ID)
	require.Equal(t, content, string(got.Content))
}

func TestBadInput(t *testing.T) {
	folder := t.TempDir()
	server := startEtcd(t, embed.Config{Dir: folder})
	a := start(t, "a", "-etcd", server.Endpoint())
	a.line("a joined")
	refuses(t, nil, map[string]refusal{
		"a taken name":               {[]string{"-name", "a", "-etcd", server.Endpoint()}, "name is taken"},
		"waiting for a taken name":   {[]string{"-name", "a", "-etcd", server.Endpoint()}, "waiting: another process has the name a"},
		"too short a lease":          {[]string{"-lease", "1s"}, "-lease 1s"},
		"an etcd that is not a URL":  {[]string{"-etcd", "nonsense"}, "-etcd nonsense"},
		"both kinds of etcd":         {[]string{"-etcd", server.Endpoint(), "-data", folder}, "-data configures"},
		"an invalid prefix":          {[]string{"-prefix", "work", "-etcd", server.Endpoint()}, "WithPrefix"},
		"an API address in use":      {[]string{"-listen", strings.TrimPrefix(a.address, "http://"), "-embed", "127.0.0.1:0", "-data", t.TempDir()}, "-listen: "},
		"an address in use":          {[]string{"-embed", strings.TrimPrefix(server.Endpoint(), "http://"), "-data", t.TempDir()}, "use -etcd to join"},
		"a folder in use":            {[]string{"-embed", "127.0.0.1:0", "-data", folder}, folder},
		"an argument without a flag": {[]string{"please"}, "please"},
		"a host with a port":         {[]string{"-hosts", "allocator.example,x:80"}, "-hosts: \"x:80\""},
		"an empty token":             {[]string{"-token-file", os.DevNull}, "is empty"},
	}, map[string]refusal{
		"an unreachable etcd": {[]string{"-etcd", "http://127.0.0.1:1"}, "etcd does not answer: [http://127.0.0.1:1]"},
	})
}

func TestToken_IsAskedFor(t *testing.T) {
	server := startEtcd(t, embed.Config{})
	file := t.TempDir() + "/token"
	require.NoError(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	p := start(t, "a", "-etcd", server.Endpoint(), "-token-file", file)
	require.Equal(t, http.StatusUnauthorized, p.ask("GET", "/work", "", nil))
	require.Equal(t, http.StatusOK, p.ask("GET", "/healthz", "", nil))
	p.token = "secret"
	require.Equal(t, http.StatusOK, p.ask("GET", "/work", "", nil))
	require.Equal(t, http.StatusOK, p.ask("GET", "/metrics", "", nil))
}

// Without a token, a process that is reachable from other machines logs a warning,
// and accepts only its configured host names.
func TestNoToken_OthersAreKeptOut(t *testing.T) {
	server := startEtcd(t, embed.Config{})
	const warning = "API reachable from other machines without a token"
	open := start(t, "a", "-etcd", server.Endpoint(), "-listen", "0.0.0.0:0", "-hosts", "Allocator.example,10.1.2.3")
	open.line(warning)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(open.address, "http://"))
	require.NoError(t, err)
	for host, want := range map[string]int{
		"allocator.example": 200, "10.1.2.3:80": 200, "localhost:" + port: 200, "127.0.0.1:" + port: 200,
		"elsewhere.example": 421, "10.1.2.4": 421,
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1:"+port+"/work", nil)
		require.NoError(t, err)
		r.Host = host
		answer, err := open.client.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, want, answer.StatusCode, host)
	}

	guarded := startWith(t, []string{tokenEnv + "=secret"}, "b", "-etcd", server.Endpoint(), "-listen", "0.0.0.0:0")
	local := start(t, "c", "-etcd", server.Endpoint())
	for _, p := range []*process{guarded, local} {
		p.line("c joined")
		require.Zero(t, p.count(warning))
	}
	start(t, "d", "-embed", "0.0.0.0:0", "-data", t.TempDir()).line("etcd reachable from other machines without a password")
}

// An outage of etcd does not end the process; requests fail with 503.
func TestAway_IsSaid(t *testing.T) {
	server := startEtcd(t, embed.Config{})
	p := start(t, "a", "-etcd", server.Endpoint())
	p.line("a leads")
	require.Equal(t, http.StatusOK, p.ask("GET", "/readyz", "", nil))
	require.NoError(t, server.Close())
	var asked sync.WaitGroup // at the same time, because each waits for etcd for seconds
	for target, method := range map[string]string{"/readyz": "GET", "/workers": "GET", "/work/a": "PUT"} {
		asked.Go(func() { assert.Equal(t, http.StatusServiceUnavailable, p.ask(method, target, "x", nil), target) })
	}
	require.Equal(t, http.StatusOK, p.ask("GET", "/healthz", "", nil), "meanwhile")
	asked.Wait()
	require.Equal(t, http.StatusOK, p.ask("GET", "/healthz", "", nil))
}

// held returns the keys and values in etcd under a prefix.
func held(t *testing.T, c *clientv3.Client, prefix string) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	got, err := c.Get(ctx, prefix, clientv3.WithPrefix())
	require.NoError(t, err)
	all := map[string]string{}
	for _, kv := range got.Kvs {
		all[string(kv.Key)] = string(kv.Value)
	}
	return all
}

// shares waits until the workers run the wanted numbers of tasks, largest first, and
// each task once.
func (p *process) shares(want ...int) {
	p.t.Helper()
	var seen workers
	p.until(func() bool {
		seen = workers{}
		if p.ask("GET", "/workers", "", &seen) != http.StatusOK {
			return false
		}
		var got []int
		tasks := map[string]bool{}
		for _, w := range seen.Workers {
			got = append(got, len(w.Tasks))
			for _, task := range w.Tasks {
				if tasks[task] {
					p.t.Errorf("%s runs twice: %+v", task, seen)
				}
				tasks[task] = true
			}
		}
		slices.SortFunc(got, func(a, b int) int { return b - a })
		return slices.Equal(got, want)
	}, func() string { return fmt.Sprintf("shares: want %v, seen %+v", want, seen) })
}

// runs returns the tasks of the process, as the API reports them.
func (p *process) runs() []string {
	p.t.Helper()
	var now workers
	require.Equal(p.t, http.StatusOK, p.ask("GET", "/workers", "", &now))
	for _, w := range now.Workers {
		if w.Name == p.name {
			return slices.Clone(w.Tasks)
		}
	}
	return nil
}

// ask sends a request to the process's API, and decodes the answer into v.
func (p *process) ask(method, target, body string, v any) int {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.address+target, strings.NewReader(body))
	require.NoError(p.t, err)
	if p.token != "" {
		r.Header.Set("Authorization", "Bearer "+p.token)
	}
	answer, err := p.client.Do(r)
	require.NoError(p.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(p.t, err)
	if v != nil && answer.StatusCode < 300 {
		require.NoError(p.t, json.Unmarshal(text, v), "%s", text)
	}
	return answer.StatusCode
}

func TestLeave_WaitsForNoLease(t *testing.T) {
	t.Parallel() // under a long lease
	server := startEtcd(t, embed.Config{})
	longLived := func(name string) *process {
		return start(t, name, "-etcd", server.Endpoint(), "-lease", "60s")
	}
	a := longLived("a")
	a.line("a leads")
	fleet := []*process{longLived("b"), longLived("c"), longLived("d")}
	for _, p := range fleet {
		p.line("d joined")
	}
	for _, id := range []string{"1", "2", "3", "4"} {
		require.Equal(t, http.StatusCreated, a.ask("PUT", "/work/"+id, id, nil))
	}
	a.shares(1, 1, 1, 1)

	// One process leaves, and the others report the new leader immediately.
	a.signal(syscall.SIGTERM)
	require.NoError(t, a.ended())
	require.Zero(t, a.count("no other process stays"), a.text())
	for _, p := range fleet {
		p.line("a left after draining")
		require.Eventually(t, func() bool { return p.count(" leads, epoch") > 1 }, timeout, interval/20, p.name)
	}

	// The remaining processes leave at the same time. None waits for two leases.
	for _, p := range fleet {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range fleet {
		require.NoError(t, p.ended())
		require.Zero(t, p.count("could not move"))
		require.Zero(t, p.count(" "+p.name+" left: "), "the lease must be revoked")
	}
}

func TestJournal_NothingPassesForAnotherLine(t *testing.T) {
	var log strings.Builder
	j := newJournal(&log, "host\n1")
	for id, shown := range map[string]string{
		"rtz3hc":                    "rtz3hc",
		"a/ü":                       "a/ü",
		"x\n09:00:00.000 a b leads": `"x\n09:00:00.000 a b leads"`,
		"\x00\x1b[2J":               `"\x00\x1b[2J"`,
		"x to b, missing: done":     `"x to b, missing: done"`,
		`"x"`:                       `"\"x\""`,
		"\u2028\u202e":              `"\u2028\u202e"`,
		"\xff":                      `"\xff"`,
		"":                          `""`,
	} {
		log.Reset()
		j.say("started %s: %s", word(id), brief([]byte(id)))
		_, text, _ := strings.Cut(log.String(), " ")
		require.True(t, strings.HasPrefix(text, `"host\n1" started `+shown+`: "`), text)
		require.Equal(t, 1, strings.Count(log.String(), "\n"))
	}
}
