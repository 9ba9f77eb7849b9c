package main

// A process of the fleet in tests: its output and its end.

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

// startEtcd starts a server with short ticks, by which it serves soon, and without
// fsync.
func startEtcd(t *testing.T, cfg embed.Config) *embed.Server {
	t.Helper()
	cfg.NoFsync, cfg.Tick = true, 10*time.Millisecond
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	server, err := embed.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return server
}

// newClient returns a client of a server without users.
func newClient(t *testing.T, server *embed.Server) *clientv3.Client {
	t.Helper()
	config, err := access{}.config([]string{server.Endpoint()})
	require.NoError(t, err)
	client, err := clientv3.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

type process struct {
	t       *testing.T
	name    string
	cmd     *exec.Cmd
	client  *http.Client
	address string // of its API
	token   string
	done    chan struct{} // closed when the process has ended and err is set
	err     error
	endedAt time.Time

	mu      sync.Mutex
	lines   []string // of the log
	printed string   // on its standard output
}

// start starts a process and waits until it serves.
func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	return startWith(t, nil, name, args...)
}

// startWith is start with more environment variables.
func startWith(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	p := launch(t, env, name, args...)
	p.until(func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.address = p.printed
		return p.address != ""
	}, func() string { return name + " has not printed its address" })
	return p
}

// launch starts a process, which is killed at the end of the test.
func launch(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	args = append([]string{"-name", name, "-lease", lease.String(), "-interval", interval.String()}, args...)
	transport := &http.Transport{}
	p := &process{
		t: t, name: name, done: make(chan struct{}),
		cmd:    exec.CommandContext(t.Context(), os.Args[0], args...),
		client: &http.Client{Transport: transport, Timeout: timeout},
	}
	p.cmd.Env = append(append(os.Environ(), runEnv+"=1"), env...)
	stdin, err := p.cmd.StdinPipe() // open until this process ends
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	log, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	var reading sync.WaitGroup
	read := func(from io.Reader, line func(string)) {
		s := bufio.NewScanner(from)
		s.Buffer(nil, 4<<20) // a line may name many items
		for s.Scan() {
			p.mu.Lock()
			line(s.Text())
			p.mu.Unlock()
		}
	}
	reading.Go(func() { read(out, func(text string) { p.printed += text }) })
	reading.Go(func() { read(log, func(text string) { p.lines = append(p.lines, text) }) })
	go func() {
		reading.Wait()
		p.err = p.cmd.Wait()
		p.endedAt = time.Now()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		_ = stdin.Close()
		transport.CloseIdleConnections()
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, p.text())
		}
	})
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// ended waits for the end of the process, and returns the error of Wait.
func (p *process) ended() error {
	p.t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(timeout):
		p.t.Fatalf("%s has not ended", p.name)
		return nil
	}
}

// line waits for a line that contains text.
func (p *process) line(text string) {
	p.t.Helper()
	p.until(func() bool { return p.count(text) > 0 }, func() string { return p.name + " never logged: " + text })
}

// count returns the number of lines that contain text so far.
func (p *process) count(text string) int {
	n := 0
	for line := range strings.Lines(p.text()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// until polls holds until it returns true.
func (p *process) until(holds func() bool, otherwise func() string) {
	p.t.Helper()
	p.within(timeout, holds, otherwise)
}

// within is until with a limit of its own.
func (p *process) within(limit time.Duration, holds func() bool, otherwise func() string) {
	p.t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	over := time.After(limit)
	for !holds() {
		select {
		case <-again.C:
		case <-over:
			require.FailNow(p.t, otherwise())
		}
	}
}

// refusal is a process's arguments, and a text that it must log.
type refusal struct {
	args []string
	says string
}

// refuses starts processes of which some end with an error, and the others stay until
// SIGTERM. They run at the same time, because many take seconds.
func refuses(t *testing.T, env []string, ending, staying map[string]refusal) {
	t.Helper()
	started := make(map[string]*process)
	for _, all := range []map[string]refusal{ending, staying} {
		for name, r := range all {
			started[name] = launch(t, env, "x", r.args...)
		}
	}
	for name, r := range ending {
		p := started[name]
		require.Error(t, p.ended(), name)
		require.Contains(t, p.text(), r.says, name)
		require.NotContains(t, p.text(), "serves at", name)
	}
	for name, r := range staying {
		p := started[name]
		p.line(r.says)
		select {
		case <-p.done:
			require.Fail(t, "process has ended", name)
		default:
		}
		p.signal(syscall.SIGTERM)
		require.NoError(t, p.ended(), name)
	}
}
