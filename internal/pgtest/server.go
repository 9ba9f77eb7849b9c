package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

// User is the superuser of each server. It needs no password.
const User = "postgres"

// Server is a PostgreSQL server with the database "postgres". Its address stays the same
// when it is started again. Its methods fail the test when something fails. Only the test's
// goroutine may call them.
type Server struct {
	t        testing.TB
	dir      string // holds data and log, and belongs to the server's user
	bin      string // of the server's programs
	host     string
	port     string
	durable  bool     // see [StartDurable]
	postgres *process // nil: not running
	paused   bool
}

// Start starts a new server that runs until the end of the test. Without the programs it
// skips the test; see package proctest.
func Start(t testing.TB) *Server {
	t.Helper()
	s := newServer(t, homeFolder(t))
	s.copyTemplate()
	s.Start()
	return s
}

// StartDurable is Start for measurements: the server syncs to its disk, and has no more
// priority than other processes.
func StartDurable(t testing.TB) *Server {
	t.Helper()
	s := newServer(t, "")
	s.durable = true
	s.initdb(s.data())
	s.Start()
	return s
}

func (s *Server) initdb(data string) {
	s.t.Helper()
	s.run("initdb", "--pgdata="+data, "--username="+User, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
}

// template is a data folder that initdb has made. A copy takes a fifth of the time. It is
// made once in each process.
var template struct {
	once sync.Once
	dir  string
}

func (s *Server) copyTemplate() {
	s.t.Helper()
	template.once.Do(func() {
		dir := ownFolder(s.t, homeFolder(s.t))
		s.initdb(dir)
		s.configure(dir, "fsync = off\njit = off")
		template.dir = dir
	})
	if template.dir == "" {
		s.t.Fatal("start PostgreSQL: initdb has failed before")
	}
	text, err := exec.Command("cp", "-a", template.dir, s.data()).CombinedOutput()
	if err != nil {
		s.t.Fatalf("start PostgreSQL: %v: %s", err, text)
	}
}

// configure appends a line to the configuration of a server that does not run.
func (s *Server) configure(data, line string) {
	s.t.Helper()
	f, err := os.OpenFile(filepath.Join(data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = fmt.Fprintln(f, line)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		s.t.Fatalf("configure PostgreSQL: %v", err)
	}
}

// newServer returns a server with an address and an empty folder in parent.
func newServer(t testing.TB, parent string) *Server {
	t.Helper()
	bin := binaries(t)
	s := &Server{t: t, dir: folder(t, parent), bin: bin}
	var err error
	if s.host, s.port, err = net.SplitHostPort(freeAddr(t)); err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	t.Cleanup(func() {
		if s.postgres == nil {
			removeMemory(filepath.Join(s.data(), "postmaster.pid")) // which is there after a crash
			return
		}
		s.Continue()
		s.postgres.end(immediate)
	})
	return s
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Addr returns the host:port of the server.
func (s *Server) Addr() string { return net.JoinHostPort(s.host, s.port) }

// URL returns the connection string of a user and a database.
func (s *Server) URL(user, database string) string { return url(user, s.Addr(), database) }

func url(user, addr, database string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", user, addr, database)
}

// Start starts a server that was stopped or has crashed, and returns when it accepts
// connections.
func (s *Server) Start() { s.start() }

// Restart stops the server and starts it with other settings, each as name=value.
func (s *Server) Restart(settings ...string) {
	s.t.Helper()
	s.Stop()
	s.start(settings...)
}

func (s *Server) start(settings ...string) {
	s.t.Helper()
	pidFile := filepath.Join(s.data(), "postmaster.pid")
	if err := os.Remove(pidFile); err != nil && !os.IsNotExist(err) { // of a crashed server
		s.t.Fatalf("start PostgreSQL: %v", err)
	}
	args := []string{
		"-D", s.data(), "-c", "listen_addresses=" + s.host, "-c", "port=" + s.port, "-c", "unix_socket_directories=",
		"-c", "dynamic_shared_memory_type=mmap", // a crash leaves nothing outside the folder
	}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	s.postgres = start(s.t, s.dir, filepath.Join(s.bin, "postgres"), args...)
	if !s.durable {
		prioritize(s.postgres.cmd.Process.Pid)
	}
	s.postgres.await("accepts connections", func() bool {
		status, err := os.ReadFile(pidFile)
		return err == nil && bytes.Contains(status, []byte("\nready"))
	})
}

// Stop stops the server: it aborts open transactions, closes all connections and returns
// when it has ended. A standby that follows receives everything first.
func (s *Server) Stop() {
	s.t.Helper()
	s.Continue()
	s.postgres.end(fast)
	s.postgres = nil
}

// Crash kills all processes of the server with SIGKILL, and returns when they have ended.
func (s *Server) Crash() {
	s.t.Helper()
	s.postgres.crash()
	s.postgres, s.paused = nil, false
}

// Pause stops all processes of the server with SIGSTOP, and returns when they have
// stopped. Connections stay open, and the kernel accepts new ones.
func (s *Server) Pause() {
	s.t.Helper()
	s.postgres.pause()
	s.paused = true
}

// Continue continues a paused server. It does nothing if the server is not paused.
func (s *Server) Continue() {
	s.t.Helper()
	if s.paused {
		s.postgres.resume()
	}
	s.paused = false
}

// Fill makes the disk full for the server: no file grows, unless it is small. The server cannot
// write its log any more, and ends soon.
func (s *Server) Fill() {
	s.t.Helper()
	s.postgres.limit("16384")
}

// Free ends Fill, and starts the server again.
func (s *Server) Free() {
	s.t.Helper()
	s.postgres.limit("unlimited")
	s.Stop()
	s.Start()
}

// SQL executes statements as the superuser, each in its own transaction unless one begins a
// transaction. It returns the rows, one a line, with columns separated by |.
func (s *Server) SQL(database, statements string) string {
	s.t.Helper()
	return s.SQLAt(s.URL(User, database), statements)
}

// SQLAt is SQL over another connection string.
func (s *Server) SQLAt(url, statements string) string {
	s.t.Helper()
	rows, err := s.psql(url, statements)
	if err != nil {
		s.t.Fatal(err)
	}
	return rows
}

// Dump returns the content of a database, or of some of its tables, as SQL that replaces it;
// see Restore.
func (s *Server) Dump(database string, tables ...string) string {
	s.t.Helper()
	args := []string{"--clean", "--if-exists", "--dbname=" + s.URL(User, database)}
	for _, table := range tables {
		args = append(args, "--table="+table)
	}
	return s.run("pg_dump", args...)
}

// Restore executes a dump in one transaction. An error leaves the database as it was,
// such as a deadlock with another client.
func (s *Server) Restore(database, dump string) error {
	_, err := s.psql(s.URL(User, database), dump, "--single-transaction")
	return err
}

func (s *Server) psql(url, statements string, options ...string) (string, error) {
	cmd := exec.Command(filepath.Join(s.bin, "psql"), append(options, "--no-psqlrc", "--quiet", "--tuples-only", "--no-align",
		"--set=ON_ERROR_STOP=1", "--dbname="+url)...)
	cmd.Stdin = strings.NewReader(statements)
	return output(cmd)
}

// run runs a program of the server as the server's user, and returns its output.
func (s *Server) run(program string, args ...string) string {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir = s.dir
	unprivileged(s.t, cmd)
	text, err := output(cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

func output(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, stderr.String())
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// Standby starts a server that replicates this one asynchronously until Cut or Promote.
func (s *Server) Standby() *Server {
	s.t.Helper()
	b := newServer(s.t, homeFolder(s.t))
	b.Follow(s)
	return b
}

// Follow starts a server that was stopped or has crashed as a standby of another. It loses
// all its data, and keeps its address.
func (s *Server) Follow(primary *Server) {
	s.t.Helper()
	if err := os.RemoveAll(s.data()); err != nil {
		s.t.Fatalf("start a standby: %v", err)
	}
	s.run("pg_basebackup", "--dbname="+primary.URL(User, "postgres"), "--pgdata="+s.data(), "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	s.Start()
}

// Cut ends the replication of a standby, which receives nothing more.
func (s *Server) Cut() {
	s.t.Helper()
	s.SQL("postgres", "alter system set primary_conninfo = ''; select pg_reload_conf()")
	s.await("its receiver ends", "select count(*) = 0 from pg_stat_wal_receiver")
}

// Promote makes a standby a server of its own, in a new timeline.
func (s *Server) Promote() {
	s.t.Helper()
	s.SQL("postgres", "select pg_promote()")
}

// await waits until a query returns true.
func (s *Server) await(what, query string) {
	s.t.Helper()
	s.postgres.await(what, func() bool { return s.SQL("postgres", query) == "t" })
}

// Bouncer is a PgBouncer in front of a server. It pools transactions: each may run on
// another of the server's connections.
type Bouncer struct {
	t       testing.TB
	dir     string
	program string
	addr    string
	process *process
}

// Bouncer starts a PgBouncer that runs until the end of t, which may be a subtest. Every user
// of the server may connect without a password. Without the program it skips t.
func (s *Server) Bouncer(t testing.TB) *Bouncer {
	t.Helper()
	b := &Bouncer{t: t, program: proctest.Program(t, "pgbouncer", "pgbouncer", "/usr/sbin/pgbouncer"), dir: folder(t, homeFolder(t)), addr: freeAddr(t)}
	host, port, err := net.SplitHostPort(b.addr)
	if err != nil {
		t.Fatalf("start PgBouncer: %v", err)
	}
	text := fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = trust
auth_user = %s
pool_mode = transaction
max_client_conn = 1000
server_login_retry = 1
`, s.host, s.port, host, port, User)
	if err := os.WriteFile(filepath.Join(b.dir, config), []byte(text), 0o644); err != nil {
		t.Fatalf("start PgBouncer: %v", err)
	}
	b.start()
	t.Cleanup(func() { b.process.end(immediate) })
	return b
}

const config = "pgbouncer.ini"

func (b *Bouncer) start() {
	b.t.Helper()
	b.process = start(b.t, b.dir, b.program, config)
	b.process.await("accepts connections", func() bool {
		c, err := net.DialTimeout("tcp", b.addr, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// Stop ends the PgBouncer, which closes all connections. Supervise starts it again.
func (b *Bouncer) Stop() {
	b.t.Helper()
	b.process.end(immediate)
}

// Supervise starts the PgBouncer again if it has ended. Version 1.18 also ends when a
// client is gone whose cancel request waits for a server that does not answer.
func (b *Bouncer) Supervise() {
	b.t.Helper()
	select {
	case <-b.process.exited:
		b.process.disarm()
		b.start()
	default:
	}
}

// Addr returns the host:port of the PgBouncer.
func (b *Bouncer) Addr() string { return b.addr }

// URL returns the connection string of a user and a database.
func (b *Bouncer) URL(user, database string) string { return url(user, b.addr, database) }
