package api_test

// What openapi.yaml does not cover: bytes, pages, conditions and slow clients.

import (
	"bufio"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/examples/allocator/api"
	"github.com/f8949c05/orchestrator/replica/etcd"
)

// item is an item in the API's answers.
type item struct {
	ID, Content, Encoding string
	Instances             int
	Requires              []string
	MaxPerZone            int `json:"max_per_zone"`
	Weight                int64
	Workers               []string
	Waiting               []api.Waiting
}

func (i item) bytes(t *testing.T) []byte {
	t.Helper()
	if i.Encoding == "" {
		return []byte(i.Content)
	}
	require.Equal(t, "base64", i.Encoding)
	content, err := base64.StdEncoding.DecodeString(i.Content)
	require.NoError(t, err)
	return content
}

func decode[T any](t *testing.T, body string) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal([]byte(body), &v), body)
	return v
}

func TestWork_ContentSurvivesByteForByte(t *testing.T) {
	s := newStage(t, stage{})
	for _, content := range []string{
		"", "text", "<&>\u2028\x00\r\n", "\xff\xfe", "half a rune \xc3", strings.Repeat("ü", api.MaxContent/2), strings.Repeat("\x80", api.MaxContent),
	} {
		answer, body := s.ask(t, "POST", "/work", content)
		require.Equal(t, http.StatusCreated, answer.StatusCode)
		posted := decode[item](t, body)
		require.Equal(t, content, string(posted.bytes(t)))
		require.Equal(t, utf8.ValidString(content), posted.Encoding == "")
		require.Equal(t, content, string(s.tasks.items[posted.ID].Content))

		_, body = s.ask(t, "GET", answer.Header.Get("Location"), "")
		require.Equal(t, content, string(decode[item](t, body).bytes(t)))
	}
	require.Len(t, s.tasks.items, 7, "each POST must create a new id")
}

func TestWork_IDsMayBeAnyText(t *testing.T) {
	s := newStage(t, stage{})
	for _, id := range []string{"a", "a/b", "...", "a b", "ü", "a\nb", "%2F", "?x=y#z", strings.Repeat("i", api.MaxID)} {
		address := "/work/" + url.PathEscape(id)
		answer, body := s.ask(t, "PUT", address, "content")
		require.Equal(t, http.StatusCreated, answer.StatusCode, "%q: %s", id, body)
		require.Equal(t, id, decode[item](t, body).ID)
		require.Contains(t, s.tasks.items, id)
		answer, _ = s.ask(t, "DELETE", address, "")
		require.Equal(t, http.StatusNoContent, answer.StatusCode, "%q", id)
	}
	answer, _ := s.ask(t, "PUT", "/work/"+strings.Repeat("i", api.MaxID+1), "content")
	require.Equal(t, http.StatusBadRequest, answer.StatusCode)
}

func TestWork_PostTakesInstances(t *testing.T) {
	s := newStage(t, stage{})
	for query, want := range map[string]int{"": 0, "?instances=3": 3, "?instances=0": -1} {
		_, body := s.ask(t, "POST", "/work"+query, "")
		posted := decode[item](t, body)
		require.Equal(t, max(cmp.Or(want, 1), 0), posted.Instances)
		require.Equal(t, want, s.tasks.items[posted.ID].Instances)
	}
}

// A PUT changes only what it names.
func TestWork_PutChangesWhatItNames(t *testing.T) {
	s := newStage(t, stage{})
	for _, step := range []struct {
		query, body string
		instances   int
		content     string
	}{
		{"", "one", 1, "one"},
		{"?instances=3", "two", 3, "two"},
		{"", "three", 3, "three"},
		{"?instances=2", "", 2, "three"},
		{"?instances=1", "four", 1, "four"},
		{"?instances=0", "", 0, "four"},
		{"", "five", 0, "five"},
	} {
		_, body := s.ask(t, "PUT", "/work/a"+step.query, step.body)
		put := decode[item](t, body)
		require.Equal(t, step.instances, put.Instances)
		require.Equal(t, step.content, put.Content)
		_, body = s.ask(t, "GET", "/work/a", "")
		got := decode[item](t, body)
		require.Equal(t, step.instances, got.Instances)
		require.Equal(t, step.content, got.Content)
	}
}

// rules are the settings of an item that say where it may run.
type rules struct {
	Requires   []string
	MaxPerZone int
	Weight     int64
}

// A PUT changes only the rules that it names, and an empty one takes a rule away.
func TestWork_PutChangesRules(t *testing.T) {
	s := newStage(t, stage{})
	for _, step := range []struct {
		query string
		want  rules
	}{
		{"?requires=gpu,!spot&weight=5", rules{Requires: []string{"gpu", "!spot"}, Weight: 5}},
		{"?max_per_zone=-1", rules{Requires: []string{"gpu", "!spot"}, MaxPerZone: -1, Weight: 5}},
		{"?instances=2", rules{Requires: []string{"gpu", "!spot"}, MaxPerZone: -1, Weight: 5}},
		{"?requires=&weight=1099511627776", rules{MaxPerZone: -1, Weight: 1 << 40}},
		{"?max_per_zone=&weight=0", rules{}},
	} {
		for _, ask := range []string{"PUT", "GET"} {
			target, body := "/work/a", ""
			if ask == "PUT" {
				target, body = target+step.query, "x"
			}
			_, answer := s.ask(t, ask, target, body)
			got := decode[item](t, answer)
			require.Equal(t, step.want, rules{Requires: got.Requires, MaxPerZone: got.MaxPerZone, Weight: got.Weight})
		}
	}
	for query, detail := range map[string]string{
		"?requires=!":              `Requires has the label \"!\": must not be empty`,
		"?weight=1099511627777":    "Weight is 1099511627777",
		"?weight=heavy":            `weight=\"heavy\": must be a number`,
		"?max_per_zone=4294967296": "MaxPerZone is 4294967296",
	} {
		answer, body := s.ask(t, "PUT", "/work/a"+query, "")
		require.Equal(t, http.StatusBadRequest, answer.StatusCode)
		require.Contains(t, body, detail)
	}
}

func TestWork_ConditionsAreOfTheVersion(t *testing.T) {
	s := newStage(t, stage{})
	tag := func(answer *http.Response, _ string) string { return answer.Header.Get("ETag") }
	status := func(answer *http.Response, _ string) int { return answer.StatusCode }

	posted, body := s.ask(t, "POST", "/work", "x")
	require.Equal(t, tag(s.ask(t, "GET", posted.Header.Get("Location"), "")), tag(posted, body))

	require.Equal(t, 412, status(s.ask(t, "PUT", "/work/a", "x", "If-Match", "*")), "the item does not exist")
	first := tag(s.ask(t, "PUT", "/work/a", "one", "If-None-Match", "*"))
	require.Regexp(t, `^"[^"]+"$`, first)
	require.Equal(t, first, tag(s.ask(t, "GET", "/work/a", "")))
	require.Equal(t, 412, status(s.ask(t, "PUT", "/work/a", "two", "If-None-Match", "*")), "the item exists")
	second := tag(s.ask(t, "PUT", "/work/a?instances=2", "", "If-Match", `"other", `+first))
	require.NotEqual(t, first, second, "a setting has changed")
	for _, match := range []string{first, "", strings.Trim(second, `"`), "W/" + second} {
		require.Equal(t, 412, status(s.ask(t, "PUT", "/work/a", "two", "If-Match", match)), match)
		require.Equal(t, 412, status(s.ask(t, "DELETE", "/work/a", "", "If-Match", match)), match)
	}
	require.Equal(t, "one", string(s.tasks.items["a"].Content))
	third := tag(s.ask(t, "PUT", "/work/a", "two", "If-Match", `"other"`, "If-Match", second))
	require.Equal(t, 204, status(s.ask(t, "DELETE", "/work/a", "", "If-Match", third)))
	require.Equal(t, 412, status(s.ask(t, "DELETE", "/work/a", "", "If-Match", third)), "the item was deleted")
}

// A web page whose name resolves to this machine sends that name as Host.
func TestGuard_AnswersToItsOwnNames(t *testing.T) {
	s := newStage(t, stage{})
	for host, own := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:8080": true, "127.9.9.9:1": true, "[::1]": true, "[::1]:8080": true, "localhost": true,
		"LocalHost:8080": true, "localhost.:80": true, "[::ffff:127.0.0.1]:80": true, "example.com": true, "Example.com:80": true,
		"": false, "elsewhere.example": false, "10.0.0.1:8080": false, "[::]:80": false, "0.0.0.0:80": false, "localhost.elsewhere.example": false,
		"127.0.0.1.elsewhere.example": false, "www.example.com": false, "x@127.0.0.1": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/work", nil)
		r.Host = host
		recorder := httptest.NewRecorder()
		s.handler.ServeHTTP(recorder, r)
		require.Equal(t, own, recorder.Code == http.StatusOK, "%q: %d", host, recorder.Code)
	}
}

func TestWork_SaysWhyWorkersAreMissing(t *testing.T) {
	s := newStage(t, stage{items: []etcd.Item{newItem("a", "", 1), newItem("a2", "", 2), newItem("b", "", 2)}})
	_, body := s.ask(t, "GET", "/work", "")
	var missing []int
	for _, one := range decode[struct{ Work []item }](t, body).Work {
		n := 0
		for _, w := range one.Waiting {
			require.Equal(t, "no other worker", w.Reason)
			n += w.Instances
		}
		missing = append(missing, n)
	}
	require.Equal(t, []int{0, 1, 2}, missing)
	_, body = s.ask(t, "GET", "/work/a", "")
	require.NotContains(t, body, "waiting")
}

func TestWork_PagesHoldEverythingOnce(t *testing.T) {
	type page struct {
		Work []item
		Next string
	}
	for name, all := range map[string]struct{ n, size int }{"many": {230, 1}, "large": {18, 600_000}} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, stage{})
			for i := range all.n {
				id := fmt.Sprintf("%03d", i)
				s.tasks.set(newItem(id, strings.Repeat("x", all.size), 1))
			}
			seen, pages := 0, 0
			for after := ""; ; pages++ {
				_, body := s.ask(t, "GET", "/work?after="+url.QueryEscape(after), "")
				p := decode[page](t, body)
				require.Less(t, len(body), 9<<20, "a page is bounded")
				require.LessOrEqual(t, len(p.Work), 100)
				for _, one := range p.Work {
					require.Equal(t, fmt.Sprintf("%03d", seen), one.ID)
					seen++
				}
				if p.Next == "" {
					break
				}
				after = p.Next
			}
			require.Equal(t, all.n, seen)
			require.Greater(t, pages, 1)
		})
	}
}

func TestWorkers_AreShownWithWhatTheyRun(t *testing.T) {
	_, body := newStage(t, stage{}).ask(t, "GET", "/workers", "")
	require.JSONEq(t, `{"workers": [{"name": "a", "state": "ready", "tasks": ["a1"]},
		{"name": "b", "state": "draining", "tasks": []}], "leader": "b", "epoch": 7}`, body)
}

func TestProblems_AreRFC9457(t *testing.T) {
	answer, body := newStage(t, stage{}).ask(t, "GET", "/work/none", "")
	require.Equal(t, "application/problem+json", answer.Header.Get("Content-Type"))
	require.JSONEq(t, `{"type": "about:blank", "title": "Not Found", "status": 404, "detail": "there is no work of this id"}`, body)
}

// serve starts a real server.
func serve(t *testing.T) (address string, s *standing) {
	t.Helper()
	s = newStage(t, stage{})
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := api.NewServer(s.config)
	var open sync.WaitGroup
	server.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Done()
		}
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
		open.Wait() // a connection lingers for half a second after an early answer
	})
	return listener.Addr().String(), s
}

// The rest of a content that is too large is not read, and the client gets the answer.
func TestServer_RefusesLargeContents(t *testing.T) {
	address, s := serve(t)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /work HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n100001\r\n"+strings.Repeat("x", 0x100001)+"\r\n")
	require.NoError(t, err)
	answers, began := bufio.NewReader(conn), time.Now()
	answer, err := http.ReadResponse(answers, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusRequestEntityTooLarge, answer.StatusCode)
	_, err = io.ReadAll(answer.Body)
	require.NoError(t, err)
	_, err = answers.ReadByte()
	require.Error(t, err, "the connection is closed")
	require.Less(t, time.Since(began), 9*time.Second, "the server does not wait for the rest")
	require.Empty(t, s.tasks.items)
}

func TestServer_RefusesLargeHeads(t *testing.T) {
	address, _ := serve(t)
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+address+"/work", nil)
	require.NoError(t, err)
	r.Header.Set("X", strings.Repeat("x", 128<<10))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, answer.StatusCode)
}
