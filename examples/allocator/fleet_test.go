package main

// Processes on an etcd that can be stopped, and clients that write all the time.

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

type fleet struct {
	t        *testing.T
	config   embed.Config
	server   *embed.Server
	proxy    *netfault.Proxy // before the server. Close hangs if clients with TLS come again and again
	endpoint string
	args     []string // for every process
	token    string   // of the API

	mu   sync.Mutex
	live []*process
	all  []*process // also those that have ended

	ended  time.Time // when end was called
	stints []*stint
}

// newFleet starts an etcd, which asks for a client certificate and a password if it is secure.
func newFleet(t *testing.T, secure bool) *fleet {
	t.Helper()
	f := &fleet{t: t, config: embed.Config{Dir: t.TempDir(), NoFsync: true, Tick: 10 * time.Millisecond, BcryptCost: 4}}
	var a access
	if secure {
		serverCA, cert, key := certificate(t, "server")
		var clientCA string
		clientCA, a.cert, a.key = certificate(t, "client")
		a.ca, f.config.TLS = serverCA, &embed.TLS{CertFile: cert, KeyFile: key, ClientCAFile: clientCA}
	}
	var err error
	f.server, err = embed.Start(f.t.Context(), f.config)
	require.NoError(t, err)
	scheme, address, _ := strings.Cut(f.server.Endpoint(), "://")
	f.config.Listen = address
	f.proxy, err = netfault.New(address)
	require.NoError(t, err)
	f.endpoint = scheme + "://" + f.proxy.Addr()
	f.args = []string{"-etcd", f.endpoint}
	if secure {
		config, err := a.config([]string{f.endpoint})
		require.NoError(t, err)
		users(t, config, "app", "pass word")
		file := filepath.Join(t.TempDir(), "password")
		require.NoError(t, os.WriteFile(file, []byte("pass word\n"), 0o600))
		f.args = append(f.args, "-etcd-ca", a.ca, "-etcd-cert", a.cert, "-etcd-key", a.key, "-etcd-user", "app", "-etcd-password-file", file)
	}
	t.Cleanup(func() {
		f.stopEtcd()
		require.NoError(t, f.proxy.Close())
	})
	return f
}

func (f *fleet) startEtcd() {
	f.t.Helper()
	var err error
	f.server, err = embed.Start(f.t.Context(), f.config)
	require.NoError(f.t, err)
	f.proxy.Heal()
}

func (f *fleet) stopEtcd() {
	f.t.Helper()
	f.proxy.Refuse()
	require.NoError(f.t, f.server.Close())
}

// start starts a process that joins.
func (f *fleet) start(name string) *process {
	f.t.Helper()
	p := start(f.t, name, f.args...)
	p.token = f.token
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live, f.all = append(f.live, p), append(f.all, p)
	return p
}

// forget records that a process ends.
func (f *fleet) forget(p *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live = slices.DeleteFunc(f.live, func(other *process) bool { return other == p })
}

// any returns a process that lives.
func (f *fleet) any() *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live[rand.IntN(len(f.live))]
}

func (f *fleet) named(name string) *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.live, func(p *process) bool { return p.name == name })
	require.GreaterOrEqual(f.t, i, 0, name)
	return f.live[i]
}

// workers returns what a process answers once it knows all that live, and the leader.
func (f *fleet) workers() (now workers) {
	f.t.Helper()
	f.mu.Lock()
	var names []string
	for _, p := range f.live {
		names = append(names, p.name)
	}
	f.mu.Unlock()
	slices.Sort(names)
	f.any().until(func() bool {
		now = workers{}
		var got []string
		if f.any().ask("GET", "/workers", "", &now) == http.StatusOK {
			for _, w := range now.Workers {
				got = append(got, w.Name)
			}
		}
		return slices.Equal(got, names) && slices.Contains(names, now.Leader)
	}, func() string { return fmt.Sprintf("want %v, seen %+v", names, now) })
	return now
}

// pick returns the leader, or a process that does not lead.
func (f *fleet) pick(leads bool) *process {
	f.t.Helper()
	now := f.workers()
	if leads {
		return f.named(now.Leader)
	}
	for _, w := range now.Workers {
		if w.Name != now.Leader {
			return f.named(w.Name)
		}
	}
	return nil
}

// owner returns the process that runs an item.
func (f *fleet) owner(id string) *process {
	f.t.Helper()
	var now work
	f.any().until(func() bool {
		now = work{}
		return f.any().ask("GET", "/work/"+id, "", &now) == http.StatusOK && len(now.Workers) == 1
	}, func() string { return fmt.Sprintf("%s does not run: %+v", id, now) })
	return f.named(now.Workers[0])
}

// settle waits until a process answers that all who live share the work, and that each item runs once.
func (f *fleet) settle() {
	f.t.Helper()
	f.any().until(func() bool {
		now, tasks := f.workers(), map[string]bool{}
		least, most := len(f.items()), 0
		for _, w := range now.Workers {
			least, most = min(least, len(w.Tasks)), max(most, len(w.Tasks))
			for _, task := range w.Tasks {
				tasks[task] = true
			}
		}
		return most-least <= 2 && len(tasks) > 0 // while clients write
	}, func() string { return fmt.Sprintf("shares: %+v", f.workers()) })
	f.owner("stays")
}

// items returns the contents of all items.
func (f *fleet) items() map[string]string {
	f.t.Helper()
	all, after := map[string]string{}, ""
	f.any().until(func() bool {
		var page struct {
			Work []work
			Next *string
		}
		if f.any().ask("GET", "/work?after="+url.QueryEscape(after), "", &page) != http.StatusOK {
			return false
		}
		for _, item := range page.Work {
			all[item.ID] = item.Content
		}
		if page.Next != nil {
			after = *page.Next
		}
		return page.Next == nil
	}, func() string { return "the items cannot be read" })
	return all
}

// write adds, changes and deletes items of its own until stop, and records what it was answered.
func (f *fleet) write(writer int, l *ledger, stop <-chan struct{}) {
	var ids []string
	for i := range 5 {
		ids = append(ids, fmt.Sprintf("w%d-%d", writer, i))
	}
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rand.IntN(60)) * time.Millisecond):
		}
		method, i, content := "PUT", rand.IntN(len(ids)), fmt.Sprintf("%d-%d", writer, n)
		id, target := ids[i], "/work/"+ids[i]
		switch rand.IntN(8) {
		case 0, 1:
			method, content = "DELETE", absent
		case 2:
			if len(ids) < 8 {
				method, id, target = "POST", "", "/work"
			}
		}
		status, answer := f.send(method, target, content)
		switch {
		case method == "POST" && status == http.StatusCreated:
			var made work
			if err := json.Unmarshal(answer, &made); err != nil {
				f.t.Errorf("%s: %v", answer, err)
			}
			l.wrote(made.ID, content, true)
			ids = append(ids, made.ID)
		case status == http.StatusOK || status == http.StatusCreated || status == http.StatusNoContent:
			l.wrote(id, content, true)
		case method == "DELETE" && status == http.StatusNotFound:
			l.saw(id, absent)
		case status == 0 || status == http.StatusServiceUnavailable:
			l.wrote(id, content, false)
		default:
			f.t.Errorf("%s %s: %d %s", method, target, status, answer)
		}
	}
}

// send sends a request to any process. The status is 0 without an answer.
func (f *fleet) send(method, target, content string) (status int, answer []byte) {
	p := f.any()
	if method == "DELETE" {
		content = ""
	}
	r, err := http.NewRequestWithContext(f.t.Context(), method, p.address+target, strings.NewReader(content))
	if err != nil {
		return 0, nil
	}
	got, err := p.client.Do(r)
	if err != nil {
		return 0, nil
	}
	defer got.Body.Close()
	if answer, err = io.ReadAll(got.Body); err != nil {
		return 0, nil
	}
	return got.StatusCode, answer
}

// end kills the processes that live, and returns the last stint of each item that ran until then.
func (f *fleet) end() map[string]*stint {
	f.t.Helper()
	f.ended = time.Now()
	for _, p := range slices.Clone(f.live) {
		_ = p.cmd.Process.Kill()
	}
	last := map[string]*stint{}
	for _, p := range f.all {
		_ = p.ended()
		f.stints = append(f.stints, stints(f.t, p.name, strings.Split(p.text(), "\n"), p.endedAt)...)
	}
	for _, s := range f.stints {
		if !s.to.Before(f.ended) {
			last[s.task] = s
		}
	}
	return last
}
