package main

// The walk-through of README.md and more, with real processes on a real etcd. The
// processes run this test binary.

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/examples/allocator/api"
	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
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
	lease    = 2 * time.Second
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

// The walk of README.md and more, on an etcd without users and on one with TLS and users. All the time
// clients write at any process. At the end no acknowledged write is lost, no item has run twice, and
// each runs with its last content.
func TestWalk(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS and users": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			walk(t, newFleet(t, secure))
		})
	}
}

func walk(t *testing.T, f *fleet) {
	const lease = 4 * time.Second // so that leases hold on a busy machine
	f.args = append(f.args, "-lease", lease.String())
	a, b := f.start("a"), f.start("b")
	a.until(func() bool { return a.count("msg=leads")+b.count("msg=leads") > 0 }, func() string { return "no leader" })
	l, stop := newLedger(), make(chan struct{})
	var writing sync.WaitGroup
	for i := range 4 {
		writing.Go(func() { f.write(i, l, stop) })
	}
	ask := func(method, target, content string, want int) {
		t.Helper()
		var status int
		f.any().until(func() bool { // 503 while it has no lease
			status = f.any().ask(method, "/work/"+target, content, nil)
			return status == want
		}, func() string { return fmt.Sprint(method, " ", target, ": ", status) })
		l.wrote(target, content, true)
	}
	ask("PUT", "stays", "1", http.StatusCreated)
	f.settle()

	// One joins, and takes its share. New content reaches the task that runs, in place.
	f.start("c")
	f.settle()
	owner := f.owner("stays")
	stops := owner.count("msg=stopped replica=" + owner.name + " task=stays")
	ask("PUT", "stays", "2", http.StatusOK)
	owner.line("msg=updated replica=" + owner.name + " task=stays content=2")
	require.Equal(t, stops, owner.count("msg=stopped replica="+owner.name+" task=stays"))

	for _, leads := range []bool{false, true} { // a worker is killed, and then the leader
		f.start(fmt.Sprint("d", leads))
		victim := f.pick(leads)
		victim.signal(syscall.SIGKILL)
		f.forget(victim)
		require.Error(t, victim.ended())
		f.settle()
	}
	leaver := f.pick(true) // the leader leaves
	leaver.signal(syscall.SIGTERM)
	f.forget(leaver)
	require.NoError(t, leaver.ended())
	leaver.line("has left")
	f.start("e")
	f.settle()

	for _, away := range []time.Duration{lease / 4, 2 * lease} { // etcd goes away, and comes back
		f.stopEtcd()
		<-time.After(away)
		f.startEtcd()
		f.settle()
	}
	close(stop)
	writing.Wait()
	now := f.items()
	for id := range now {
		f.owner(id)
	}
	t.Logf("%d acknowledged writes, %d items at the end", l.writes, len(now))
	require.Greater(t, l.writes, 100)
	require.Empty(t, l.lost)
	require.Empty(t, l.wrong(now))
	last := f.end()
	require.Empty(t, twice(f.stints))
	t.Logf("%d times an item ran", len(f.stints))
	require.Greater(t, len(f.stints), 100)
	for id, content := range now {
		require.Contains(t, last, id, "it runs")
		require.Equal(t, content, last[id].contents[len(last[id].contents)-1], id)
	}
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
	second.line(`msg=started replica=a task="a/ü\n"`) // on one line
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
	a.line("has joined")
	client := newClient(t, server)
	for _, key := range []string{"/other/program", "/broken/table"} {
		_, err := client.Put(t.Context(), key, "its own")
		require.NoError(t, err)
	}
	refuses(t, nil, map[string]refusal{
		"the prefix of another program": {[]string{"-prefix", "/other", "-etcd", server.Endpoint()}, "the table belongs to another service"},
		"another program's table":       {[]string{"-prefix", "/broken", "-etcd", server.Endpoint()}, "the table belongs to another service"},
		"no prefix":                     {[]string{"-prefix", "/", "-etcd", server.Endpoint()}, "a prefix of 1 to 200 bytes"},
		"too short a lease":             {[]string{"-lease", "900ms"}, "-lease 900ms"},
		"too long a lease":              {[]string{"-lease", "3m"}, "-lease 3m0s"},
		"an etcd that is not a URL":     {[]string{"-etcd", "nonsense"}, "-etcd nonsense"},
		"both kinds of etcd":            {[]string{"-etcd", server.Endpoint(), "-data", folder}, "-data configures"},
		"an API address in use":         {[]string{"-listen", strings.TrimPrefix(a.address, "http://"), "-embed", "127.0.0.1:0", "-data", t.TempDir()}, "-listen: "},
		"an address in use":             {[]string{"-embed", strings.TrimPrefix(server.Endpoint(), "http://"), "-data", t.TempDir()}, "use -etcd to join"},
		"a folder in use":               {[]string{"-embed", "127.0.0.1:0", "-data", folder}, folder},
		"an argument without a flag":    {[]string{"please"}, "please"},
		"a host with a port":            {[]string{"-hosts", "allocator.example,x:80"}, "-hosts: \"x:80\""},
		"an empty token":                {[]string{"-token-file", os.DevNull}, "is empty"},
	}, map[string]refusal{
		"an unreachable etcd": {[]string{"-etcd", "http://127.0.0.1:1"}, "etcd at http://127.0.0.1:1: "},
	})
	for _, key := range []string{"/other/program", "/broken/table"} {
		got, err := client.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, "its own", string(got.Kvs[0].Value))
	}
}

// tokenFile returns a file with a token.
func tokenFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	return file
}

// Values in etcd that are edited or deleted by hand stop nothing, and start nothing twice.
func TestBadInput_ValuesEditedByHand(t *testing.T) {
	f := newFleet(t, false)
	a, b := f.start("a"), f.start("b")
	client := newClient(t, f.server)
	for _, id := range []string{"1", "2", "3", "4"} {
		require.Equal(t, http.StatusCreated, a.ask("PUT", "/work/"+id, "x"+id, nil))
	}
	a.shares(2, 2)
	keys := func() (all []string) {
		got, err := client.Get(t.Context(), "/work/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		require.NoError(t, err)
		for _, kv := range got.Kvs {
			if !strings.HasPrefix(string(kv.Key), "/work/content/") && !strings.HasPrefix(string(kv.Key), "/work/registry/") {
				all = append(all, string(kv.Key))
			}
		}
		return all
	}
	for _, key := range keys() {
		_, err := client.Put(t.Context(), key, "by hand")
		require.NoError(t, err)
	}
	leads := func() int { return a.count("msg=leads ") + b.count("msg=leads ") }
	before := leads()
	a.until(func() bool { return leads() > before }, func() string { return "nobody leads again" })
	a.shares(2, 2)
	before = leads()
	_, err := client.Delete(t.Context(), "/work/orders/", clientv3.WithPrefix())
	require.NoError(t, err)
	_, err = client.Put(t.Context(), "/work/registry/1", "by hand")
	require.NoError(t, err)
	a.until(func() bool { return a.count("source has bad rows")+b.count("source has bad rows") > 0 }, func() string { return "no warning" })
	require.Equal(t, http.StatusOK, a.ask("PUT", "/work/1?instances=1", "", nil))
	a.shares(2, 2)
	require.Zero(t, a.count("msg=stopped")+b.count("msg=stopped"), "nothing stops")
	f.end()
	require.Empty(t, twice(f.stints))
	require.Len(t, f.stints, 4)
}

// A process has so many items with long names that its order is above etcd's limit. Those beyond it wait.
// The others run, and all run once there is another process.
func TestBadInput_AnOrderAboveEtcdsLimit(t *testing.T) {
	t.Parallel() // it mostly waits
	f := newFleet(t, false)
	f.args = append(f.args, "-lease", "10s")
	a := f.start("a")
	const items = 300
	long := strings.Repeat("%01", api.MaxID-3)
	for i := range items {
		require.Equal(t, http.StatusCreated, a.ask("PUT", fmt.Sprintf("/work/%s%03d", long, i), "x", nil))
	}
	running := func() (n int) {
		for _, w := range f.workers().Workers {
			n += len(w.Tasks)
		}
		return n
	}
	// Each batch has a mebibyte, and a term waits for it for a third of the lease.
	const most = 6 * timeout
	a.within(most, func() bool { return a.count("backend refuses a record, it is left out") > 0 }, func() string { return "nothing is refused" })
	require.Equal(t, http.StatusCreated, a.ask("PUT", "/work/short", "x", nil))
	require.Less(t, running(), items)
	f.start("b")
	a.within(most, func() bool { return running() == items+1 }, func() string { return fmt.Sprint(running(), " run") })
}

func TestToken_IsAskedFor(t *testing.T) {
	p := start(t, "a", "-etcd", startEtcd(t, embed.Config{}).Endpoint(), "-token-file", tokenFile(t))
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
		p.line("has joined")
		require.Zero(t, p.count(warning))
	}
	start(t, "d", "-embed", "0.0.0.0:0", "-data", t.TempDir()).line("etcd reachable from other machines without a password")
}

// An outage of etcd does not end the process. Requests fail with 503 until it is back.
func TestAway_IsSaid(t *testing.T) {
	f := newFleet(t, false)
	p := f.start("a")
	p.line("msg=leads")
	ready := func(want int) {
		t.Helper()
		p.until(func() bool { return p.ask("GET", "/readyz", "", nil) == want }, func() string { return fmt.Sprint("not ", want) })
	}
	ready(http.StatusOK)
	f.stopEtcd()
	require.Equal(t, http.StatusServiceUnavailable, p.ask("PUT", "/work/a", "x", nil))
	ready(http.StatusServiceUnavailable)
	require.Equal(t, http.StatusServiceUnavailable, p.ask("GET", "/workers", "", nil))
	require.Equal(t, http.StatusOK, p.ask("GET", "/healthz", "", nil))
	f.startEtcd()
	ready(http.StatusOK)
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
	f := newFleet(t, false)
	f.args = append(f.args, "-lease", "15s")
	a := f.start("a")
	a.line("msg=leads") // a new table waits for a lease
	rest := []*process{f.start("b"), f.start("c"), f.start("d")}
	for _, id := range []string{"1", "2", "3", "4"} {
		require.Equal(t, http.StatusCreated, a.ask("PUT", "/work/"+id, id, nil))
	}
	a.shares(1, 1, 1, 1)
	waited, began := proctest.MeasureWaiting(t), time.Now()
	a.signal(syscall.SIGTERM)
	f.forget(a)
	require.NoError(t, a.ended())
	rest[0].shares(2, 1, 1)

	// The remaining processes leave at the same time.
	for _, p := range rest {
		p.signal(syscall.SIGTERM)
		f.forget(p)
	}
	for _, p := range rest {
		require.NoError(t, p.ended())
		require.Zero(t, p.count("could not move"))
	}
	require.Less(t, time.Since(began)-waited(), 10*time.Second)
	f.end()
	require.Empty(t, twice(f.stints))
}
