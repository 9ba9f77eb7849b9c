package main

// The memory that clients can make a process use.

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/examples/allocator/api"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

func TestMemory_IsBounded(t *testing.T) {
	t.Parallel() // under a long lease
	const (
		items   = 14 // together more than a page
		readers = 40
		bodies  = 600       // with a megabyte each, twice as much as most
		most    = 320 << 20 // 64 MiB for requests, 30 for connections, 14 for the running items, and as much garbage
	)
	server := startEtcd(t, embed.Config{})
	p := start(t, "a", "-etcd", server.Endpoint(), "-lease", "15s") // so that leases hold on a busy machine
	for i := range items {
		content := strings.Repeat("\x01", api.MaxContent) // JSON needs six bytes for each
		status := 0
		p.until(func() bool { // 503 if etcd takes too long, as on a busy machine
			status = p.ask("PUT", fmt.Sprintf("/work/%d", i), content, nil)
			return status == http.StatusCreated || status == http.StatusOK
		}, func() string { return fmt.Sprintf("PUT: status %d", status) })
	}
	p.shares(items)
	before := p.memory()

	address, err := netip.ParseAddrPort(strings.TrimPrefix(p.address, "http://"))
	require.NoError(t, err)
	dial := func(head string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialTCP(t.Context(), "tcp", netip.AddrPort{}, address)
		if err != nil {
			return nil, err
		}
		_, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: %s\r\n", head, address)
		// Small buffers, because the kernel's memory for a connection is not the
		// process's.
		return conn, errors.Join(err, conn.SetReadBuffer(4<<10), conn.SetWriteBuffer(64<<10))
	}
	for range readers {
		conn, err := dial("GET /work")
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "\r\n")
		require.NoError(t, err)
	}
	var sending sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{} // 0: the connection was cut
	allButOne := bytes.Repeat([]byte("x"), api.MaxContent-1)
	for range bodies {
		sending.Go(func() {
			status := 0
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				statuses[status]++
			}()
			conn, err := dial("POST /work")
			if err != nil {
				return
			}
			defer conn.Close()
			go func() {
				_, _ = fmt.Fprintf(conn, "Content-Length: %d\r\n\r\n%s", api.MaxContent, allButOne)
			}()
			if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				status = answer.StatusCode
				_ = answer.Body.Close()
			}
		})
	}
	stalled := make(chan struct{})
	go func() {
		sending.Wait()
		close(stalled)
	}()
	var slowest time.Duration
	stored := 0
	for n, over := 0, false; !over; n++ { // other contents are stored meanwhile
		began := time.Now()
		switch status := p.ask("PUT", "/work/0", strings.Repeat("x", max(1, n%2*api.MaxContent)), nil); status {
		case http.StatusOK:
			stored++
		default: // etcd takes too long on a busy machine
			require.Equal(t, http.StatusServiceUnavailable, status)
		}
		slowest = max(slowest, time.Since(began))
		select {
		case <-stalled:
			over = true
		default:
		}
	}
	after := p.memory()
	t.Logf("%d MiB, at most %d while %d clients read nothing and %d sent too slowly, statuses of the latter: %v; %d contents stored meanwhile, the slowest in %v",
		before>>20, after>>20, readers, bodies, statuses, stored, slowest)
	require.Positive(t, statuses[http.StatusRequestTimeout])
	require.Positive(t, stored)
	require.Zero(t, p.count(`msg="request refused" replica=a method=PUT`), "for want of memory")
	require.Less(t, after, most)
}

// memory returns the peak memory of the process. Memory that was returned to the
// system still counts.
func (p *process) memory() int {
	p.t.Helper()
	var text string
	p.until(func() bool {
		r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.address+"/metrics", nil)
		require.NoError(p.t, err)
		answer, err := p.client.Do(r)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		text = string(b)
		return err == nil && answer.StatusCode == http.StatusOK
	}, func() string { return "no metrics: " + text })
	found := regexp.MustCompile(`(?m)^go_memstats_sys_bytes (.+)$`).FindStringSubmatch(text)
	require.NotNil(p.t, found, text)
	n, err := strconv.ParseFloat(found[1], 64)
	require.NoError(p.t, err)
	return int(n)
}
