package api_test

// Slow clients and a store that does not answer: how long the server waits for them,
// and how they affect other clients. The connections are in memory, and time is that
// of a synctest bubble.

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/examples/allocator/api"
)

// pipes is a listener with connections in memory.
type pipes struct {
	conns  chan net.Conn
	ended  chan struct{}
	closed chan struct{} // receives a value for each closed connection
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { close(p.ended); return nil }

func (*pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial connects and sends the beginning of a request.
func (p *pipes) dial(t *testing.T, request string) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	p.conns <- server
	_, err := io.WriteString(client, request)
	require.NoError(t, err)
	return client
}

// status reads an answer and returns its status.
func status(t *testing.T, from net.Conn) int {
	t.Helper()
	defer from.Close()
	answer, err := http.ReadResponse(bufio.NewReader(from), nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, answer.Body)
	require.NoError(t, err)
	return answer.StatusCode
}

// serveInBubble serves 8 items of a mebibyte, of which JSON needs six bytes for each
// byte.
func serveInBubble(t *testing.T, test func(t *testing.T, p *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, stage{limits: api.Limits{Memory: 32 << 20}})
		for i := range 8 {
			s.tasks.set(api.Item{ID: fmt.Sprint(i), Content: []byte(strings.Repeat("\x01", api.MaxContent)), Instances: 1})
		}
		p := &pipes{conns: make(chan net.Conn), ended: make(chan struct{}), closed: make(chan struct{}, 100)}
		server := api.NewServer(s.config)
		server.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				p.closed <- struct{}{}
			}
		}
		done := make(chan error, 1)
		go func() { done <- server.Serve(p) }()
		test(t, p)
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
}

const (
	getOne = "GET /work/1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
	getAll = "GET /work HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
)

func TestSlow_ReadersAreCutOff(t *testing.T) {
	for name, client := range map[string]struct {
		every time.Duration // between two reads
		cut   time.Duration // 0: gets the whole answer
	}{
		"reads nothing":   {time.Hour, 10 * time.Second},
		"reads too late":  {11 * time.Second, 10 * time.Second},
		"reads for long":  {2 * time.Second, time.Minute},
		"reads fast":      {time.Millisecond, 0},
		"reads with rest": {10 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			serveInBubble(t, func(t *testing.T, p *pipes) {
				conn := p.dial(t, getOne)
				defer conn.Close()
				began := time.Now()
				read := make(chan int, 1)
				go func() {
					n, buf := 0, make([]byte, 64<<10)
					for {
						time.Sleep(client.every)
						m, err := conn.Read(buf)
						n += m
						if err != nil {
							read <- n
							return
						}
					}
				}()
				<-p.closed
				took := time.Since(began)
				n := <-read
				if client.cut == 0 {
					require.Greater(t, n, 6*api.MaxContent)
					return
				}
				require.Less(t, n, 6*api.MaxContent)
				require.InDelta(t, client.cut.Seconds(), took.Seconds(), 1)
			})
		})
	}
}

func TestSlow_BodiesAreCutOff(t *testing.T) {
	for name, client := range map[string]struct {
		every  time.Duration // between two bytes of 25
		status int
		took   time.Duration
	}{
		"sends nothing":      {time.Hour, 408, 10 * time.Second},
		"sends for long":     {3 * time.Second, 408, 30 * time.Second},
		"sends, but in time": {time.Second, 201, 25 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			serveInBubble(t, func(t *testing.T, p *pipes) {
				conn := p.dial(t, "PUT /work/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 25\r\n\r\n")
				began := time.Now()
				var sending sync.WaitGroup
				sending.Go(func() {
					for range 25 {
						time.Sleep(client.every)
						if _, err := conn.Write([]byte("x")); err != nil {
							return
						}
					}
				})
				require.Equal(t, client.status, status(t, conn))
				require.Equal(t, client.took, time.Since(began))
				sending.Wait()
			})
		})
	}
}

// Slow clients hold memory until they are cut off. Other requests are refused within
// seconds, and requests that need no memory are answered.
func TestSlow_RoomIsBounded(t *testing.T) {
	for name, step := range map[string]struct {
		slow, next string // next needs as much room as slow, so it never fits into what is left
		status     int
	}{
		"readers of pages": {getAll, getAll, 200},
		"readers of items": {getOne, getOne, 200},
		"bodies": {
			"PUT /work/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\nx",
			"PUT /work/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", 201,
		},
		"bodies of unknown length": {
			"PUT /work/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
			"PUT /work/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 201,
		},
	} {
		t.Run(name, func(t *testing.T) {
			serveInBubble(t, func(t *testing.T, p *pipes) {
				began := time.Now()
				for range 40 {
					defer p.dial(t, step.slow).Close()
				}
				synctest.Wait()
				require.Equal(t, 503, status(t, p.dial(t, step.next)))
				require.Equal(t, 3*time.Second, time.Since(began))
				require.Equal(t, 200, status(t, p.dial(t, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")))
				for range 40 {
					<-p.closed
				}
				require.Less(t, time.Since(began), time.Minute)
				require.Equal(t, step.status, status(t, p.dial(t, step.next)))
			})
		})
	}
}

// silent implements Tasks and Cluster without ever answering; each call waits for
// its context.
type silent struct{}

func never(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (silent) Create(ctx context.Context, _ api.Item) (api.Item, error) {
	return api.Item{}, never(ctx)
}

func (silent) Put(ctx context.Context, _ string, _ api.Change) (api.Item, bool, error) {
	return api.Item{}, false, never(ctx)
}

func (silent) Get(ctx context.Context, _ string) (api.Item, error) { return api.Item{}, never(ctx) }

func (silent) List(ctx context.Context, _ string, _ int) ([]api.Item, error) { return nil, never(ctx) }

func (silent) Delete(ctx context.Context, _ string, _ api.Condition) error { return never(ctx) }

func (silent) Owners(string) []string { return nil }

func (silent) Waiting(string, int) []api.Waiting { return nil }

func (silent) Workers(ctx context.Context) ([]api.Worker, error) { return nil, never(ctx) }

func (silent) Leader(ctx context.Context) (string, uint64, error) { return "", 0, never(ctx) }

func TestAway_RequestsFailWithinSeconds(t *testing.T) {
	for request, timeout := range map[string]time.Duration{
		"GET /work": 3 * time.Second, "POST /work": 3 * time.Second, "GET /work/a": 3 * time.Second,
		"PUT /work/a": 3 * time.Second, "DELETE /work/a": 3 * time.Second, "GET /workers": 3 * time.Second,
		"GET /readyz": time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			handler := api.New(api.Config{Tasks: silent{}, Cluster: silent{}, Metrics: http.NotFoundHandler(), Hosts: []string{"example.com"}})
			method, target, _ := strings.Cut(request, " ")
			recorder := httptest.NewRecorder()
			began := time.Now()
			handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader("x")))
			require.Equal(t, http.StatusServiceUnavailable, recorder.Code, request)
			require.Contains(t, recorder.Body.String(), "does not answer")
			require.Equal(t, "1", recorder.Header().Get("Retry-After"))
			require.Equal(t, timeout, time.Since(began), request)
		})
	}
}
