package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestS6_TheProgramCollectsAndReports(t *testing.T) {
	var out strings.Builder
	s, err := parse([]string{"-for", "3s", "-rate", "200"})
	require.NoError(t, err)
	require.NoError(t, run(t.Context(), s, &out))
	text := out.String()
	t.Log("\n" + text)
	require.Contains(t, text, "a stand-in for Redis in this process; 200 requests a second")
	require.Positive(t, number(t, text, `requests +(\d+) to each service`))
	require.Positive(t, number(t, text, `expire +0.1 +(\d+) `))
	require.Positive(t, number(t, text, `archive +0.1 +(\d+) `))
	rows := regexp.MustCompile(`(?m)^ +\d+s +(\d+) #* +(\d+) #*$`).FindAllStringSubmatch(text, -1)
	require.NotEmpty(t, rows, "the chart")
	require.NotContains(t, text, "cut short")
	last := rows[len(rows)-1]
	require.Less(t, atoi(t, last[1]), atoi(t, last[2]), "recruits left more garbage than there is without recruiting")
	require.Regexp(t, `(?m)^ +with +[\d.]+m?s +[\d.]+m?s$`, text, "latencies")
	require.Regexp(t, `(?m)^ +without +[\d.]+m?s +[\d.]+m?s$`, text, "latencies")
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
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := impatient{interrupt: cancel}
	began := time.Now()
	require.NoError(t, run(ctx, settings{lasts: time.Hour, rate: 50}, &out))
	require.Less(t, time.Since(began), time.Minute)
	require.Contains(t, out.String(), "latency", "the results so far are reported")
	require.Regexp(t, `(?m)^cut short after [\d.]+m?s$`, out.String(), "the report says that it was cut short")
}

// impatient records the output, and interrupts shortly after its beginning.
type impatient struct {
	strings.Builder
	interrupt func()
}

func (i *impatient) Write(p []byte) (int, error) {
	if i.Len() == 0 {
		time.AfterFunc(300*time.Millisecond, i.interrupt)
	}
	return i.Builder.Write(p)
}

func TestNoSecondHasTwoRows(t *testing.T) {
	r := results{names: [2]string{"with", "without"}}
	for i, at := range []time.Duration{1000, 2001, 2999, 3001, 4000, 4300} { // milliseconds
		r.add(sample{at: at * time.Millisecond, expired: [2]int{i, 0}})
	}
	var text strings.Builder
	r.printChart(&text)
	rows := regexp.MustCompile(`(?m)^ +(\d+s +\d)`).FindAllStringSubmatch(text.String(), -1)
	var got []string
	for _, row := range rows {
		got = append(got, strings.Join(strings.Fields(row[1]), " "))
	}
	require.Equal(t, []string{"1s 0", "2s 1", "3s 3", "4s 5"}, got, text.String())
}

// A call to a Redis that accepts connections but does not answer ends with its
// context.
func TestS6_ASilentRedisBlocksNoCallBeyondItsContext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // never accepts a connection
	require.NoError(t, err)
	defer func() { require.NoError(t, silent.Close()) }()
	o := options(silent.Addr().String())
	o.ReadTimeout = 20 * time.Second // for calls without a deadline
	rdb := redis.NewClient(o)
	defer func() { require.NoError(t, rdb.Close()) }()

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = newCache(rdb, "c").collect(ctx, slice)
	var late net.Error
	require.ErrorAs(t, err, &late)
	require.True(t, late.Timeout(), "%v", err)
	require.Less(t, time.Since(began), 10*time.Second)
}

func TestCloseDeletesOnlyItsOwnKeys(t *testing.T) {
	rdb := oneShot(t, startRedis(t))
	require.NoError(t, rdb.Set(t.Context(), "somebody's", "value", 0).Err())
	st := &store{rdb: oneShot(t, dialOf(rdb)), prefix: "recruit-mine:", end: func() {}}
	s, err := newSide(st, "with")
	require.NoError(t, err)
	_, err = s.cache.write(t.Context(), "f", "v", time.Hour)
	require.NoError(t, err)
	_, err = s.queue.add(t.Context())
	require.NoError(t, err)
	s.close()
	require.EqualValues(t, 6, rdb.DBSize(t.Context()).Val())
	require.NoError(t, st.close(t.Context()))
	require.Equal(t, []string{"somebody's"}, rdb.Keys(t.Context(), "*").Val())
}

func TestRedisThatIsNotThere(t *testing.T) {
	err := run(t.Context(), settings{redis: "127.0.0.1:1", lasts: time.Second, rate: 1}, io.Discard)
	require.ErrorContains(t, err, "reach redis at 127.0.0.1:1")
}

func TestFlagsOutOfRange(t *testing.T) {
	for args, says := range map[string]string{
		"-for 1ms":  "-for is 1ms: want 1s to 1h",
		"-rate 0":   "-rate is 0: want 1 to 100000",
		"something": `unexpected argument "something"`,
	} {
		_, err := parse(strings.Fields(args))
		require.EqualError(t, err, says)
	}
}

func TestTheHandlers(t *testing.T) {
	st, err := openStore(t.Context(), "")
	require.NoError(t, err)
	defer func() { require.NoError(t, st.close(context.WithoutCancel(t.Context()))) }()
	s, err := newSide(st, "with")
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
	s, err := newSide(st, "with")
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
		require.Contains(t, w.Body.String(), "client is closed")
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

func TestBars(t *testing.T) {
	require.Equal(t, "    0 "+strings.Repeat(" ", chartWidth), bar(0, 9))
	require.Equal(t, "    1 #"+strings.Repeat(" ", chartWidth-1), bar(1, 10_000), "a small value has a bar")
	require.Equal(t, "10000 "+strings.Repeat("#", chartWidth), bar(10_000, 10_000))
}
