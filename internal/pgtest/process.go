package pgtest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

// The signals that end a server, for [process.end].
const (
	fast      = syscall.SIGINT
	immediate = syscall.SIGQUIT
)

// process is a server and its children. It ends with the test process, however that ends.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	exited chan struct{}
	// guard ends the server when its standard input, lifeline, is closed.
	guard    *exec.Cmd
	lifeline io.Closer
}

// start starts a program as an unprivileged user, in a folder that [folder] has returned.
// Its output is appended to the folder's log.
func start(t testing.TB, dir, program string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(program, args...), exited: make(chan struct{})}
	p.cmd.Dir = dir
	unprivileged(t, p.cmd)
	file, err := os.OpenFile(filepath.Join(dir, log), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	p.cmd.Stdout, p.cmd.Stderr = file, file
	if err = p.cmd.Start(); err != nil {
		_ = file.Close()
		t.Fatalf("start %s: %v", program, err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // it may be killed, so an error is expected
		_, _ = fmt.Fprintf(file, "%s has ended: %v\n", program, p.cmd.ProcessState)
		_ = file.Close()
	}()
	p.guard = exec.Command("sh", "-c", `read _; pkill -CONT -P "$0"; kill -CONT "$0"; kill -QUIT "$0"`, fmt.Sprint(p.cmd.Process.Pid))
	if p.lifeline, err = p.guard.StdinPipe(); err == nil {
		err = p.guard.Start()
	}
	if err != nil {
		_ = p.cmd.Process.Kill()
		t.Fatalf("guard %s: %v", program, err)
	}
	return p
}

// await waits until cond returns true, for a minute at most and as long as the process
// runs. Otherwise it fails the test.
func (p *process) await(what string, cond func() bool) {
	p.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !cond() {
		select {
		case <-tick.C:
			continue
		case <-p.exited:
		case <-deadline:
		}
		p.t.Fatalf("%s: %s: not within a minute", p.cmd.Path, what)
	}
}

// end sends a signal that ends the process, and returns when it and its children have
// ended.
func (p *process) end(s syscall.Signal) {
	p.t.Helper()
	children := p.children()
	_ = p.cmd.Process.Signal(s) // it may have ended
	<-p.exited
	p.disarm()
	p.gone(children)
}

// disarm ends the guard, which must not signal another process with the same ID.
func (p *process) disarm() {
	_ = p.guard.Process.Kill()
	_ = p.guard.Wait()
	_ = p.lifeline.Close()
}

// log is the name of the file with the output of a process.
const log = "log"

// folder returns a new folder in parent that belongs to the unprivileged user. It is removed
// at the end of the test. If the test has failed, the end of the folder's log is printed.
func folder(t testing.TB, parent string) string {
	t.Helper()
	dir := ownFolder(t, parent)
	t.Cleanup(func() {
		if text, err := os.ReadFile(filepath.Join(dir, log)); err == nil && t.Failed() {
			t.Logf("%s", text[max(0, len(text)-4096):])
		}
		_ = os.RemoveAll(dir)
	})
	return dir
}

// ownFolder returns a new folder that belongs to the unprivileged user.
func ownFolder(t testing.TB, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "pgtest") //nolint:usetesting // other users cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	give(t, dir)
	return dir
}

// home is the parent of this process's folders, in memory if there is room: a server creates
// a thousand small files. It is removed when the process has ended, however it ends.
var home struct {
	once     sync.Once
	dir      string
	lifeline io.Closer // becoming garbage would close it
	err      error
}

func homeFolder(t testing.TB) string {
	t.Helper()
	home.once.Do(func() {
		if home.dir, home.err = os.MkdirTemp(tempDir(), "pgtest"); home.err != nil { //nolint:usetesting // it outlives the test
			return
		}
		remover := exec.Command("sh", "-c", `trap "" INT TERM; read _; rm -rf "$0"`, home.dir)
		if home.lifeline, home.err = remover.StdinPipe(); home.err == nil {
			home.err = errors.Join(remover.Start(), os.Chmod(home.dir, 0o711))
		}
	})
	if home.err != nil {
		t.Fatal(home.err)
	}
	return home.dir
}

// freeAddr returns a free address of this machine. Its host is a random one in
// 127.0.0.0/8: outgoing connections use 127.0.0.1, so the kernel gives none of them this
// port.
func freeAddr(t testing.TB) string {
	t.Helper()
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// binaries returns the folder of PostgreSQL's programs: that of the newest version in
// Debian's folder, or the one in the PATH.
func binaries(t testing.TB) string {
	t.Helper()
	return filepath.Dir(proctest.Program(t, debianPackage, "/usr/lib/postgresql/[1-9][0-9]/bin/postgres", "postgres"))
}

const debianPackage = "postgresql"
