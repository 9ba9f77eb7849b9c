//go:build peers

package replicas_test

// The tables in stores, as replicas open them, with what they send and receive counted.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/etcd"
	"github.com/f8949c05/orchestrator/replica/memory"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

// backend is a table of a store.
type backend interface {
	waiting
	io.Closer
}

type waiting interface {
	replica.Backend
	replica.Waiter
}

// open returns a table with connections of its own.
func open(ctx context.Context, store, url, name string) (backend, error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	switch store {
	case onPostgres:
		config, err := pgxpool.ParseConfig(url)
		if err != nil {
			return nil, err
		}
		config.ConnConfig.DialFunc, config.ConnConfig.Tracer = dial, queries{}
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return nil, err
		}
		t := postgres.New(pool, name, postgres.WithLogger(log))
		return closing{t, func() error { pool.Close(); return t.Close() }}, nil
	case onEtcd:
		dialTCP := func(ctx context.Context, addr string) (net.Conn, error) { return dial(ctx, "tcp", addr) }
		client, err := clientv3.New(clientv3.Config{
			Endpoints: []string{url}, Logger: zap.NewNop(),
			DialOptions: []grpc.DialOption{grpc.WithStatsHandler(messages{}), grpc.WithContextDialer(dialTCP)},
		})
		if err != nil {
			return nil, err
		}
		return closing{etcd.New(client, "/"+name, etcd.WithLogger(log)), client.Close}, nil
	default:
		return &remote{url + "/" + name, http.Client{Transport: &http.Transport{DialContext: dial}}}, nil
	}
}

// closing is a table that closes its connections.
type closing struct {
	waiting
	close func() error
}

func (c closing) Close() error { return c.close() }

// What this process has sent and received over the connections of its tables, in bytes, and how
// many queries of PostgreSQL, messages to etcd, or calls.
var sent, requests atomic.Int64

// dial returns a connection whose bytes are counted.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	return counted{c}, err
}

type counted struct{ net.Conn }

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	sent.Add(int64(n))
	return n, err
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	sent.Add(int64(n))
	return n, err
}

// queries counts them. It is a pgx.QueryTracer.
type queries struct{}

func (queries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	requests.Add(1)
	return ctx
}

func (queries) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// messages counts transactions, and the beginnings and ends of watches. It is a stats.Handler.
type messages struct{}

func (messages) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (messages) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (messages) HandleConn(context.Context, stats.ConnStats)                       {}

func (messages) HandleRPC(_ context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutPayload); ok {
		requests.Add(1)
	}
}

// memoryServer has tables in memory, by path. A call is a request with an Update in JSON, and the
// answer a View.
type memoryServer struct{ tables sync.Map }

const (
	callSync = "Sync"
	callRead = "Read"
	callWait = "Wait"
)

func (m *memoryServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	of, _ := m.tables.LoadOrStore(r.URL.Path, memory.New())
	t, _ := of.(*memory.Table)
	var u replica.Update
	var v replica.View
	err := json.NewDecoder(r.Body).Decode(&u)
	switch call := r.Header.Get("Call"); {
	case err != nil:
	case call == callSync:
		v, err = t.Sync(r.Context(), u)
	case call == callRead:
		v, err = t.Read(r.Context(), u.Query)
	default:
		err = t.Wait(r.Context(), u.Query)
	}
	if err != nil {
		code := http.StatusInternalServerError
		if errors.Is(err, replica.ErrEvicted) {
			code = http.StatusGone
		}
		http.Error(w, err.Error(), code)
		return
	}
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

// remote is a table of a memoryServer.
type remote struct {
	url    string
	client http.Client
}

func (t *remote) call(ctx context.Context, call string, u replica.Update) (v replica.View, err error) {
	text, err := json.Marshal(u)
	if err != nil {
		return v, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(text))
	if err != nil {
		return v, err
	}
	r.Header.Set("Call", call)
	requests.Add(1)
	answer, err := t.client.Do(r)
	if err != nil {
		return v, cmp.Or(context.Cause(ctx), err)
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	switch answer.StatusCode {
	case http.StatusOK:
		return v, json.NewDecoder(answer.Body).Decode(&v)
	case http.StatusGone:
		return v, replica.ErrEvicted
	}
	return v, fmt.Errorf("%s of %s: %s", call, t.url, answer.Status)
}

func (t *remote) Sync(ctx context.Context, u replica.Update) (replica.View, error) {
	return t.call(ctx, callSync, u)
}

func (t *remote) Read(ctx context.Context, q replica.Query) (replica.View, error) {
	return t.call(ctx, callRead, replica.Update{Query: q})
}

func (t *remote) Wait(ctx context.Context, q replica.Query) error {
	_, err := t.call(ctx, callWait, replica.Update{Query: q})
	return err
}

func (t *remote) Close() error {
	t.client.CloseIdleConnections()
	return nil
}
