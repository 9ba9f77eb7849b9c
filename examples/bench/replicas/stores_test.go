//go:build peers

package replicas_test

// The stores that are measured, by name, and their servers.

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/version"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

// The names of stores. Memory is a table in the memory of a server: the least that a store can
// take.
const (
	onPostgres = "postgres"
	onEtcd     = "etcd"
	onMemory   = "memory"
)

// server is that of a store. Its address stays the same when it is started again.
type server interface {
	Crash()
	Start()
	PID() int // its children may be part of it
}

// way is a way to a store, and the column of its figures.
type way struct {
	server
	column     string
	store, url string
	polls      bool // instead of Wait
}

// ways starts the server of a store. The first way is the usual one.
func ways(t *testing.T, store string) (all []way, named string) {
	t.Helper()
	if store != onPostgres {
		p := &program{&proctest.Process{T: t, Name: store, Role: serverRole}, proctest.FreeAddrs(t, 1)[0]}
		p.Settings = programSettings{store, p.addr, t.TempDir()}
		p.Start()
		return []way{{server: p, column: store, store: store, url: "http://" + p.addr}}, map[string]string{onEtcd: "etcd " + version.Version}[store]
	}
	s := pgtest.StartDurable(t)
	s.SQL(database, "alter system set max_connections = 2200") // two for each of 1,000 replicas
	s.Stop()
	s.Start()
	p, url := postgresServer{s}, s.URL(pgtest.User, database)
	return []way{
		{p, "PostgreSQL", store, url, false},
		{p, "without LISTEN", store, url, true},
		{p, pgBouncer, store, s.Bouncer(t).URL(pgtest.User, database), false},
	}, "PostgreSQL " + strings.Fields(s.SQL(database, "show server_version"))[0]
}

// usual returns the first way to each store.
func usual(all []way) []way {
	return slices.CompactFunc(slices.Clone(all), func(a, b way) bool { return a.store == b.store })
}

const (
	database  = "postgres"
	pgBouncer = "PgBouncer"
)

type postgresServer struct{ *pgtest.Server }

func (s postgresServer) PID() int {
	file, err := os.ReadFile(filepath.Join(s.SQL(database, "show data_directory"), "postmaster.pid"))
	if err != nil {
		panic(err) // the server has just said so
	}
	line, _, _ := strings.Cut(string(file), "\n")
	pid, _ := strconv.Atoi(line)
	return pid
}

// program is a server that is a process of this test's binary.
type program struct {
	*proctest.Process
	addr string
}

func (p *program) Crash() {
	p.Kill()
	<-p.Exited()
}

func (p *program) Start() {
	p.Process.Start()
	require.Eventually(p.T, func() bool {
		conn, err := net.Dial("tcp", p.addr)
		return err == nil && conn.Close() == nil
	}, time.Minute, 10*time.Millisecond, p.Output.Tail())
}

const serverRole = "server"

type programSettings struct{ Store, Addr, Dir string }

// runServer is the main function of a program. The etcd has one member and syncs to its disk.
func runServer(s programSettings) error {
	if s.Store == onMemory {
		return http.ListenAndServe(s.Addr, &memoryServer{}) //nolint:gosec // without timeouts, because Wait is long
	}
	e, err := embed.Start(context.Background(), embed.Config{Dir: s.Dir, Listen: s.Addr})
	if err != nil {
		return err
	}
	return fmt.Errorf("etcd: %w", <-e.Err())
}
