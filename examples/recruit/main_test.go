package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/examples/internal/stage/stagetest"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

func TestS6_TheProgramCollectsAndReports(t *testing.T) {
	p := stagetest.Start(t, ".", "-for", "4s")
	text := p.Wait(t, 0)
	t.Log("\n" + text)
	require.Empty(t, p.Stderr.String())
	stagetest.CheckWidth(t, text)
	require.Contains(t, text, "a stand-in for Redis in this process; 300 requests a second")
	require.Positive(t, number(t, text, `(\d+) requests to each service`))
	require.Positive(t, number(t, text, `expire +recruited (\d+) requests`))
	require.Positive(t, number(t, text, `archive +recruited (\d+) requests`))
	rows := regexp.MustCompile(`exist: +(\d+) with recruiting, +(\d+) without`).FindAllStringSubmatch(text, -1)
	require.NotEmpty(t, rows)
	last := rows[len(rows)-1]
	require.Less(t, atoi(t, last[1]), atoi(t, last[2]), "recruits left more garbage than there is without recruiting")
	require.Regexp(t, `latency with +recruiting: median [\d.]+m?s, 99th percentile [\d.]+m?s`, text)
	require.Regexp(t, `latency without recruiting: median [\d.]+m?s, 99th percentile [\d.]+m?s`, text)
}

func number(t *testing.T, text, pattern string) int {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.NotNil(t, found, "%s in:\n%s", pattern, text)
	return atoi(t, found[1])
}

func atoi(t *testing.T, digits string) int {
	t.Helper()
	n, err := strconv.Atoi(digits)
	require.NoError(t, err)
	return n
}

func TestAnInterruptEndsItEarly(t *testing.T) {
	p := stagetest.Start(t, ".", "-for", "1h")
	p.Until(t, `with recruiting`)
	require.NoError(t, p.Process.Signal(os.Interrupt))
	require.Contains(t, p.Wait(t, 0), "latency", "the results so far are reported")
}

// A call to a Redis that accepts connections but does not answer ends with its
// context.
func TestS6_ASilentRedisBlocksNoCallBeyondItsContext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // never accepts a connection
	require.NoError(t, err)
	defer func() { require.NoError(t, silent.Close()) }()
	rdb := newPool(silent.Addr().String(), redis.DialReadTimeout(20*time.Second)) // for calls without a deadline
	defer func() { require.NoError(t, rdb.Close()) }()

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	waited := proctest.MeasureWaiting(t)
	began := time.Now()
	_, err = newCache(rdb, "c").collect(ctx, slice)
	var late net.Error
	require.ErrorAs(t, err, &late)
	require.True(t, late.Timeout(), "%v", err)
	require.Less(t, time.Since(began)-waited(), 10*time.Second)
}

func TestCloseDeletesOnlyItsOwnKeys(t *testing.T) {
	dial := startRedis(t)
	rdb := oneShot(t, dial)
	ask(t, redis.String, rdb, "SET", "somebody's", "value")
	st := &store{rdb: oneShot(t, dial), prefix: "recruit-mine:", end: func() {}}
	s, err := newService(st, "with")
	require.NoError(t, err)
	_, err = s.cache.write(t.Context(), "f", "v", time.Hour)
	require.NoError(t, err)
	_, err = s.queue.add(t.Context())
	require.NoError(t, err)
	s.close()
	require.Equal(t, 6, ask(t, redis.Int, rdb, "DBSIZE"))
	require.NoError(t, st.close(t.Context()))
	require.Equal(t, []string{"somebody's"}, ask(t, redis.Strings, rdb, "KEYS", "*"))
}

func TestRedisThatIsNotThere(t *testing.T) {
	err := run(t.Context(), "127.0.0.1:1", time.Second, io.Discard)
	require.ErrorContains(t, err, "reach redis at 127.0.0.1:1")
}

func TestFlagsOutOfRange(t *testing.T) {
	for args, want := range map[string]string{
		"-for 1ms":  "-for is 1ms: want at least 1s",
		"something": `unexpected argument "something"`,
	} {
		p := stagetest.Start(t, ".", strings.Fields(args)...)
		require.Empty(t, p.Wait(t, 1))
		require.Equal(t, "recruit: "+want+"\n", p.Stderr.String())
	}
}

func TestTheHandlers(t *testing.T) {
	st, err := openStore(t.Context(), "")
	require.NoError(t, err)
	defer func() { require.NoError(t, st.close(context.WithoutCancel(t.Context()))) }()
	s, err := newService(st, "with")
	require.NoError(t, err)
	defer s.close()
	h := s.handler()
	for _, c := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"GET", "/cache/f", "", 404, "not here\n"},
		{"PUT", "/cache/f?ttl=1h", "v", 200, ""},
		{"GET", "/cache/f", "", 200, "v"},
		{"PUT", "/cache/f?ttl=1h", "", 200, ""},
		{"GET", "/cache/f", "", 200, ""},
		{"PUT", "/cache/f", "v", 400, "ttl must be a duration of at least 1ms, as in ?ttl=1.5s\n"},
		{"PUT", "/cache/f?ttl=-1s", "v", 400, "ttl must be a duration of at least 1ms, as in ?ttl=1.5s\n"},
		{"PUT", "/cache/f?ttl=1h", strings.Repeat("v", largest+1), 413, "http: request body too large\n"},
		{"POST", "/items/1/finish", "", 404, "not here\n"},
		{"POST", "/items", "", 200, "1"},
		{"POST", "/items/1/finish", "", 200, ""},
		{"POST", "/items/1/reopen", "", 200, ""},
		{"POST", "/items/2/reopen", "", 404, "not here\n"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
		require.Equal(t, c.status, w.Code, "%s %s", c.method, c.path)
		require.Equal(t, c.answer, w.Body.String(), "%s %s", c.method, c.path)
	}
}

func TestWithoutRedisTheServiceSaysSo(t *testing.T) {
	st, err := openStore(t.Context(), "")
	require.NoError(t, err)
	s, err := newService(st, "with")
	require.NoError(t, err)
	defer s.close()
	require.NoError(t, st.close(t.Context()))
	for _, c := range []struct{ method, path string }{
		{http.MethodGet, "/cache/f"},
		{http.MethodPut, "/cache/f?ttl=1h"},
		{http.MethodPost, "/items"},
		{http.MethodPost, "/items/1/finish"},
		{http.MethodPost, "/items/1/reopen"},
	} {
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		require.Equal(t, http.StatusBadGateway, w.Code, "%s %s", c.method, c.path)
		require.Contains(t, w.Body.String(), "closed pool")
	}
}

func TestPercentiles(t *testing.T) {
	var of []time.Duration
	require.Zero(t, percentile(of, 99))
	for i := 100; i > 0; i-- {
		of = append(of, time.Duration(i)*time.Millisecond)
	}
	require.Equal(t, 50*time.Millisecond, percentile(of, 50))
	require.Equal(t, 99*time.Millisecond, percentile(of, 99))
	require.Equal(t, time.Millisecond, percentile(of[99:], 99))
}
