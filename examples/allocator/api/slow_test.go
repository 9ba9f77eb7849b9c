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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/examples/allocator/api"
	"github.com/f8949c05/orchestrator/replica/etcd"
)

// pipes is a listener with connections in memory.
type pipes struct {
	conns  chan net.Conn
	ended  chan struct{}
	closed chan struct{} // receives a value for a closed connection
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
		s := newStage(t, stage{})
		for i := range 8 {
			s.tasks.set(newItem(fmt.Sprint(i), strings.Repeat("\x01", api.MaxContent), 1))
		}
		p := &pipes{conns: make(chan net.Conn), ended: make(chan struct{}), closed: make(chan struct{}, 100)}
		server := api.NewServer(s.config)
		server.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				select {
				case p.closed <- struct{}{}:
				default: // nobody waits for this one
				}
			}
		}
		done := make(chan error, 1)
		go func() { done <- server.Serve(p) }()
		test(t, p)
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
		time.Sleep(time.Second) // a connection lingers for half a second after an early answer
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

func TestSlow_HeadsAreCutOff(t *testing.T) {
	serveInBubble(t, func(t *testing.T, p *pipes) {
		began := time.Now()
		conn := p.dial(t, "POST /work HTTP/1.1\r\nHost: localhost\r\n")
		defer conn.Close()
		_, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, time.Since(began))
	})
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

// Readers that are too slow give way: another one is served at once, or once the others have had
// their share of time.
func TestSlow_ReadersGiveWay(t *testing.T) {
	for name, request := range map[string]string{"pages": getAll, "items": getOne} {
		t.Run(name, func(t *testing.T) {
			serveInBubble(t, func(t *testing.T, p *pipes) {
				for range 40 {
					defer p.dial(t, request).Close()
				}
				synctest.Wait()
				began := time.Now()
				require.Equal(t, 200, status(t, p.dial(t, request)))
				require.Equal(t, 201, status(t, p.dial(t, "PUT /work/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx")))
				require.Less(t, time.Since(began), time.Second)
			})
		})
	}
}

// Four hundred clients begin to send a mebibyte, and do not finish it, again and again. Other
// contents are stored: short ones at once, and long ones soon.
func TestSlow_SendersGiveWay(t *testing.T) {
	const (
		known   = "PUT /work/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\n"
		chunked = "PUT /work/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\n"
	)
	put := func(content string) string {
		return fmt.Sprintf("PUT /work/b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(content), content)
	}
	for name, slow := range map[string]struct {
		head  string
		part  int
		every time.Duration // between further bytes; 0: none
	}{
		"stall after the head":   {known, 0, 0},
		"stall after some bytes": {known, freeBytes + 1, 0},
		"stall before the end":   {known, api.MaxContent - 1, 0},
		"trickle":                {known, freeBytes + 1, 10 * time.Millisecond},
		"of unknown length":      {chunked, freeBytes + 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			serveInBubble(t, func(t *testing.T, p *pipes) {
				part := make([]byte, slow.part)
				stop := make(chan struct{})
				var sending sync.WaitGroup
				for range 400 {
					sending.Go(func() {
						for p.stall(slow.head, part, slow.every, stop) {
						}
					})
				}
				time.Sleep(quantum)
				var short, long time.Duration
				statuses := make(map[int]int)
				for range 2 {
					began := time.Now()
					statuses[status(t, p.send(put("x")))]++
					short = max(short, time.Since(began))
					began = time.Now()
					statuses[status(t, p.send(put(strings.Repeat("x", api.MaxContent))))]++
					long = max(long, time.Since(began))
				}
				close(stop)
				sending.Wait()
				t.Logf("the slower of two contents: short %v, long %v, statuses %v", short, long, statuses)
				require.Equal(t, map[int]int{201: 1, 200: 3}, statuses)
				require.Zero(t, short, "it needs no room")
				require.Less(t, long, 2*time.Second)
			})
		})
	}
}

// freeBytes is how much of a content needs no room, and quantum how long a client may send while others wait.
const (
	freeBytes = 32 << 10
	quantum   = 100 * time.Millisecond
)

// send sends a request while the server reads it.
func (p *pipes) send(request string) net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	go func() { _, _ = io.WriteString(client, request) }() // until the server has read it, or closes
	return client
}

// stall sends the beginning of a request, and waits until the server or stop ends that. It returns
// false after stop.
func (p *pipes) stall(head string, part []byte, every time.Duration, stop <-chan struct{}) bool {
	client, server := net.Pipe()
	defer client.Close()
	select {
	case p.conns <- server:
	case <-stop:
		_ = server.Close()
		return false
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, client) // until the server closes
	}()
	go func() {
		_, err := client.Write(append([]byte(head), part...))
		for every > 0 && err == nil {
			time.Sleep(every)
			_, err = client.Write([]byte("x"))
		}
	}()
	select {
	case <-ended:
		return true
	case <-stop:
		return false
	}
}

// A dashboard that takes its time to make an answer does not wait for its client, so it gives no way.
func TestSlow_DashboardsAreNotCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admin := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(5 * quantum)
			_, _ = io.WriteString(w, "all of it")
		})
		handler := api.New(api.Config{Registry: silent{}, Cluster: fleet{}, Admin: admin, Hosts: []string{"example.com"}})
		var all sync.WaitGroup
		for range 17 { // one more than have room at the same time
			all.Go(func() {
				recorder := httptest.NewRecorder()
				handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/dashboard/", nil))
				assert.Equal(t, "all of it", recorder.Body.String())
			})
		}
		all.Wait()
	})
}

// silent implements Registry without ever answering; each call waits for its context.
type silent struct{}

func never(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (silent) Get(ctx context.Context, _ string) (etcd.Item, error) {
	return etcd.Item{}, never(ctx)
}

func (silent) List(ctx context.Context, _ string, _ int) ([]etcd.Item, error) {
	return nil, never(ctx)
}

func (silent) CompareAndPut(ctx context.Context, _ ...etcd.Item) (int, error) { return 0, never(ctx) }

func (silent) CompareAndDelete(ctx context.Context, _ ...etcd.Item) (int, error) {
	return 0, never(ctx)
}

func TestAway_RequestsFailWithinSeconds(t *testing.T) {
	for request, timeout := range map[string]time.Duration{
		"GET /work": 3 * time.Second, "POST /work": 3 * time.Second, "GET /work/a": 3 * time.Second,
		"PUT /work/a": 3 * time.Second, "DELETE /work/a": 3 * time.Second, "GET /workers": 0, "GET /readyz": 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			handler := api.New(api.Config{Registry: silent{}, Cluster: fleet{down: true}, Admin: http.NotFoundHandler(), Hosts: []string{"example.com"}})
			method, target, _ := strings.Cut(request, " ")
			recorder := httptest.NewRecorder()
			began := time.Now()
			handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader("x")))
			require.Equal(t, http.StatusServiceUnavailable, recorder.Code, request)
			require.Regexp(t, "does not answer|store failed", recorder.Body.String())
			require.Equal(t, "1", recorder.Header().Get("Retry-After"))
			require.Equal(t, timeout, time.Since(began), request)
		})
	}
}
