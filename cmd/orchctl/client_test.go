package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/internal/testca"
)

// header is that of a canned answer.
func header() api.Header {
	return api.Header{Term: orchestrator.Term{Epoch: 1, Number: 7}, Start: time.Now().Add(-time.Second), Took: 30 * time.Millisecond, Now: time.Now()}
}

// answers answers every request with a value.
func answers(status int, value any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if status != http.StatusOK {
			w.Header().Set("Content-Type", "application/problem+json")
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(value)
	})
}

func says(status int, contentType, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Location", "/login")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

func problem(status int, detail, leader string) http.Handler {
	return answers(status, api.Error{Title: http.StatusText(status), Status: status, Detail: detail, Leader: leader})
}

// text answers with text.
func text(w http.ResponseWriter, about api.Text, body string) {
	encoded, _ := json.Marshal(about)
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set(api.TextHeader, string(encoded))
	_, _ = io.WriteString(w, body)
}

// healthy answers as a dashboard without problems.
func healthy() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { text(w, api.Text{Header: header()}, ok) })
}

const ok = "ok: All 3 instances run, evenly.\n"

// Whatever a server does, the command says in one line within the timeout what is wrong.
func TestServers_ThatAreNoDashboard(t *testing.T) {
	hangs := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for name, test := range map[string]struct {
		server http.Handler // nil: none
		args   string
		code   int
		says   string
	}{
		"none":          {nil, "status", exitUnreachable, "http://a: connection refused; does the process run, and is the address right?"},
		"hangs":         {hangs, "status", exitUnreachable, "no answer within 10s"},
		"hangs shorter": {hangs, "-timeout 300ms status", exitUnreachable, "no answer within 300ms"},
		"hangs in the middle": {http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"term":`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}), "status", exitUnreachable, "no answer within 10s"},
		"ends in the middle": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"term":`)
		}), "status", exitUnreachable, "the connection ended before the answer did"},
		"a site":                 {says(200, "text/html", "<html>"), "status", exitFailed, "is not that of a dashboard of this version"},
		"another API":            {says(200, "application/json", `{"status":"ok"}`), "status", exitFailed, "it has no time"},
		"another type":           {says(200, "application/json", `{"now":"2000-01-01T00:00:00Z","problems":7}`), "status", exitFailed, "is not that of a dashboard of this version"},
		"no path":                {says(404, "text/plain", "404 page not found"), "status", exitFailed, "is the path in -server right?"},
		"an older one":           {says(404, "text/html", "404 page not found"), "what-if -drain w", exitFailed, "an older version without what-if"},
		"an older one with JSON": {problem(404, "No page.", ""), "worker w", exitFailed, "an older version without worker"},
		"redirects":              {says(302, "text/html", ""), "status", exitFailed, "redirects to /login"},
		"fails":                  {says(500, "text/plain", "oops"), "status", exitFailed, "500 Internal Server Error"},
		"a proxy without it":     {says(502, "text/html", "oops"), "status", exitUnreachable, "502 Bad Gateway"},
		"no leader":              {problem(503, "This process does not lead.", ""), "status", exitUnreachable, "This process does not lead"},
		"a leader of no use":     {problem(503, "x", "ftp://b"), "status", exitUnreachable, `names a leader that cannot be asked: "ftp://b" must begin with`},
		"leads to itself":        {problem(503, "x", "http://a"), "status", exitUnreachable, "http://a says that http://a leads; no leader found"},
		"leads to nobody":        {problem(503, "x", "http://c"), "status", exitUnreachable, "http://a says that http://c leads; http://c: connection refused; does the process run, and is the address right?"},
		"a socket of yours":      {problem(503, "x", "unix:///run/x"), "status", exitUnreachable, "unix:///run/x is not among the addresses of -server"},
		"unknown":                {answers(404, api.Error{Type: api.TypeUnknownName, Status: 404, Detail: "There is no worker w."}), "worker w", exitUnknown, "There is no worker w"},
		"refuses":                {problem(403, "Read only.", ""), "status", exitFailed, "Read only"},
		"bad request":            {problem(400, "No such thing.", ""), "status", exitFailed, "No such thing"},
		"wants a token":          {problem(401, "No token.", ""), "status", exitFailed, "No token; give the token with -token-file"},
		"busy":                   {problem(429, "One at a time.", ""), "what-if -drain w", exitFailed, "One at a time: try again"},
		"a hostile error":        {problem(500, "\x1b[2J\u202egnp\nx", ""), "status", exitFailed, `\u001b[2J\u202egnp\u000ax`},
		"without end":            {http.HandlerFunc(endless), "status", exitFailed, "it is no dashboard"},
		"read-only, no drain":    {answers(200, api.Settings{Header: api.Header{Now: time.Unix(1, 0)}}), "drain w -yes", exitFailed, "read-only"},
		"read-only, no undrain":  {answers(200, api.Settings{Header: api.Header{Now: time.Unix(1, 0)}}), "undrain w", exitFailed, "read-only"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				if test.server != nil {
					n.serve("a:80", test.server)
				}
				began := time.Now()
				got := n.run("http://a", strings.Fields(test.args)...)
				require.Equal(t, test.code, got.code, got.errors)
				require.Contains(t, got.errors, test.says)
				require.Equal(t, 1, strings.Count(got.errors, "\n"), got.errors)
				require.Empty(t, got.out)
				require.LessOrEqual(t, time.Since(began), 10*time.Second)
			})
		})
	}
}

func endless(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		if _, err := w.Write(make([]byte, 1<<16)); err != nil {
			return
		}
	}
}

// The addresses share the timeout, so that one that hangs hides none.
func TestServers_AreTriedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		n.serve("b:80", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		n.serve("c:80", problem(http.StatusServiceUnavailable, "x", "http://e/x/"))
		n.serve("e:80", healthy())
		const all = "http://a,http://b,http://c"
		got := n.run(all, "status", "-check")
		require.Equal(t, result{exitDone, ok, ""}, got)
		got = n.run("http://a,http://b", "status")
		require.Equal(t, exitUnreachable, got.code)
		require.Equal(t, "orchctl: none of the 2 servers leads: http://a: connection refused; does the process run, and is the address right?; "+
			"http://b: no answer within 10s; is the address right? (-timeout waits longer)\n", got.errors)
	})
}

// When the leader dies, the others name it until its lease ends. It is asked once.
func TestServers_ThatNameADeadLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dead = "http://a: connection refused; does the process run, and is the address right?"
		n := newNetwork(t)
		n.serve("b:80", problem(http.StatusServiceUnavailable, "x", "http://a"))
		n.serve("c:80", problem(http.StatusServiceUnavailable, "x", "http://a"))
		got := n.run("http://a,http://b,http://c", "status")
		require.Equal(t, result{exitUnreachable, "", "orchctl: none of the 3 servers leads: " + dead +
			"; http://b says that http://a leads; http://c says that http://a leads\n"}, got)
		got = n.run("http://b,http://a", "status")
		require.Equal(t, result{exitUnreachable, "", "orchctl: none of the 2 servers leads: http://b says that http://a leads; " + dead + "\n"}, got)
	})
}

// The token goes to the addresses of -server, and to others only over TLS if the authority of
// -ca certifies them.
func TestToken_GoesOnlyToTheFleet(t *testing.T) {
	n := newNetwork(t)
	n.real = true
	own, foreign := testca.New(t, "own"), testca.New(t, "foreign")
	certificate := func(ca *testca.CA) *tls.Config {
		files := ca.Issue(t, nil, func(c *x509.Certificate) { c.DNSNames = []string{"a", "b", "c"} })
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		require.NoError(t, err)
		return &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	var (
		mu     sync.Mutex
		tokens []string
	)
	leads := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		tokens = append(tokens, r.Header.Get("Authorization"))
		healthy().ServeHTTP(w, r)
	})
	wants := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			problem(http.StatusUnauthorized, "No token.", "").ServeHTTP(w, r)
			return
		}
		leads(w, r)
	})
	n.serve("a:80", leads)
	n.serve("b:80", leads)
	n.serve("b:443", leads, withTLS(certificate(own)))
	n.serve("c:443", leads, withTLS(certificate(foreign)))
	n.serve("d:80", wants)
	for _, leader := range []string{"a", "b", "d"} {
		n.serve("to-"+leader+":80", problem(http.StatusServiceUnavailable, "x", "http://"+leader))
		n.serve("to-tls-"+leader+":80", problem(http.StatusServiceUnavailable, "x", "https://"+leader))
	}
	n.serve("to-tls-c:80", problem(http.StatusServiceUnavailable, "x", "https://c"))
	token, ca := file(t, "secret\n"), file(t, string(own.PEM()))
	status := func(server string, args ...string) result {
		mu.Lock()
		tokens = nil
		mu.Unlock()
		return n.run(server, append([]string{"-token-file", token, "-insecure-token", "status", "-check"}, args...)...)
	}

	require.Equal(t, result{exitDone, ok, ""}, status("http://a"))
	require.Equal(t, []string{"Bearer secret"}, tokens)
	require.Equal(t, result{exitDone, ok, ""}, status("http://to-b"))
	require.Equal(t, []string{""}, tokens, "an address that only a server names")
	require.Equal(t, result{exitDone, ok, ""}, status("http://to-b,http://b"))
	require.Equal(t, []string{"Bearer secret"}, tokens)
	require.Equal(t, result{exitDone, ok, ""}, status("http://to-tls-b", "-ca", ca))
	require.Equal(t, []string{"Bearer secret"}, tokens)

	got := status("http://to-tls-c", "-ca", ca)
	require.Equal(t, exitUnreachable, got.code)
	require.Contains(t, got.errors, "-ca names the authority that is trusted")
	require.Empty(t, tokens)
	got = status("http://to-d")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.errors, "the token was not sent")
	require.Contains(t, status("https://a:80").errors, "the address must begin with http://")
	require.Contains(t, n.run("http://b:443", "status").errors, "the address must begin with https://")
}

// Without -insecure-token the token is not sent over http to another machine.
func TestToken_IsNotSentInClear(t *testing.T) {
	n := newNetwork(t)
	token := file(t, "secret")
	for address, code := range map[string]int{
		"http://a": exitUsage, "http://192.0.2.1:80": exitUsage, "http://127.0.0.1,http://[2001:db8::1]": exitUsage, "http://localhost.example.com": exitUsage,
		"http://127.0.0.1": exitUnreachable, "http://[::1]:8080": exitUnreachable, "http://localhost": exitUnreachable, "https://a": exitUnreachable,
		"unix:///run/x.sock": exitUnreachable,
	} {
		got := n.run(address, "-token-file", token, "status")
		require.Equal(t, code, got.code, got.errors)
		require.Equal(t, code == exitUsage, strings.Contains(got.errors, "use https, or give -insecure-token"), got.errors)
		require.Equal(t, exitUnreachable, n.run(address, "-token-file", token, "status", "-insecure-token").code)
		require.Equal(t, exitUnreachable, n.run(address, "status").code)
	}
}

func TestTLS_ClientCertificate(t *testing.T) {
	n := newNetwork(t)
	n.real = true
	ca := testca.New(t, "own")
	files := ca.Issue(t, nil, func(c *x509.Certificate) { c.DNSNames = []string{"a"} })
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(ca.Certificate)
	n.serve("a:443", healthy(), withTLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}))
	require.Equal(t, result{exitDone, ok, ""}, n.run("https://a", "-ca", files.CA, "-cert", files.Cert, "-key", files.Key, "status", "-check"))
	got := n.run("https://a", "-ca", files.CA, "status", "-check")
	require.Equal(t, exitUnreachable, got.code)
	require.Contains(t, got.errors, "give one with -cert and -key")
}

func TestServer_UnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	server := &http.Server{Handler: healthy()}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	defer func() { _ = server.Close(); <-ended }()
	n := newNetwork(t)
	p, out, errs := n.process()
	p.dial = new(net.Dialer).DialContext
	p.getenv = func(key string) string {
		return map[string]string{"ORCHCTL_SERVER": "unix://" + path, "ORCHCTL_TOKEN_FILE": file(t, "secret")}[key]
	}
	require.Equal(t, exitDone, p.run(t.Context(), []string{"status", "-check"}), errs.String())
	require.Equal(t, ok, out.String())
}

func TestUsage(t *testing.T) {
	n := newNetwork(t)
	for args, says := range map[string]string{
		"":                             "a command is missing",
		"nonsense":                     `no command "nonsense"`,
		"-nonsense":                    "flag provided but not defined",
		"status -nonsense":             "flag provided but not defined",
		"status x":                     `unexpected argument "x"`,
		"changes -outcome bad":         "must be done, failed, ",
		"changes -since yesterday":     "invalid duration",
		"worker":                       "NAME is missing",
		"drain":                        "WORKER… is missing",
		"-o yaml status":               "-o yaml: must be table, json or name",
		"status -o name":               "status has no names",
		"-timeout 0s status":           "must be more than 0",
		"-cert x status":               "belong together",
		"-ca /nonsense status":         "-ca: ",
		"-token-file /dev/null status": "must have one line",
		"-server ftp://x status":       "must begin with http://",
		"-server http://u:p@x status":  "is not an address",
		"-server= status":              "give -server or set ORCHCTL_SERVER",
	} {
		got := n.run("http://a", strings.Fields(args)...)
		require.Equal(t, exitUsage, got.code, args)
		require.Contains(t, got.errors, says)
		require.Empty(t, got.out)
	}
	for _, args := range []string{"help", "-h", "help drain", "drain -h"} {
		got := n.run("http://a", strings.Fields(args)...)
		require.Equal(t, exitDone, got.code, args)
		require.Contains(t, got.errors, "usage: orchctl")
	}
}

func TestVersion(t *testing.T) {
	n := newNetwork(t)
	got := n.run("", "version")
	require.Equal(t, exitDone, got.code)
	require.Regexp(t, `^orchctl \S+, go\S+\n$`, got.out)
	require.Regexp(t, `"go": "go`, n.run("", "version", "-o", "json").out)
}

func TestReplay_OfAnotherFile(t *testing.T) {
	n := newNetwork(t)
	for name, path := range map[string]string{"no such file": "/nonsense\x1b", "another": file(t, "x\n")} {
		got := n.run("", "replay", path)
		require.Equal(t, exitFailed, got.code, name)
		require.Equal(t, 1, strings.Count(got.errors, "\n"))
		require.NotContains(t, got.errors, "\x1b")
	}
}

// Flags stand anywhere, and names may look like flags.
func TestParse(t *testing.T) {
	for args, want := range map[string]string{
		"a b":         "[a b] false",
		"a -x b":      "[a b] true",
		"-x -- -a -b": "[-a -b] true",
		"a -- -x":     "[a -x] false",
		"-- a -- b":   "[a -- b] false",
	} {
		f := flag.NewFlagSet("", flag.ContinueOnError)
		x := f.Bool("x", false, "")
		names, err := parse(f, strings.Fields(args), false)
		require.NoError(t, err)
		require.Equal(t, want, fmt.Sprint(names, *x))
	}
}

// A list is read page by page up to the limit, and its parts are one output.
func TestList_IsReadPageByPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		const all = 2500
		n.serve("a:80", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			after, _ := strconv.Atoi(r.URL.Query().Get("after"))
			limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
			a := api.Workers{Header: header(), Page: api.Page{Total: all, Matching: all}, Workers: []api.Worker{}}
			names := ""
			for i := after; i < min(after+limit, all); i++ {
				a.Workers = append(a.Workers, api.Worker{Name: api.Name{Name: fmt.Sprint(i)}})
				names += fmt.Sprintln(i)
			}
			if next := after + limit; next < all {
				a.After = fmt.Sprint(next)
			}
			if r.Header.Get("Accept") == "application/json" {
				answers(http.StatusOK, a).ServeHTTP(w, r)
				return
			}
			text(w, api.Text{Header: a.Header, Page: a.Page, Rows: len(a.Workers)}, names)
		}))
		for limit, want := range map[string]int{"0": all, "1200": 1200, "7": 7} {
			got := n.run("http://a", "workers", "-o", "name", "-limit", limit)
			require.Equal(t, want, strings.Count(got.out, "\n"))
			require.Equal(t, want < all, strings.Contains(got.errors, fmt.Sprintf("only the first %d rows of %d; -limit 0 shows all", want, all)))
			var list api.Workers
			require.NoError(t, json.Unmarshal([]byte(n.run("http://a", "workers", "-o", "json", "-limit", limit).out), &list))
			require.Len(t, list.Workers, want)
			require.Equal(t, fmt.Sprint(want-1), list.Workers[want-1].Name.Name)
		}
	})
}

// An older dashboard, which has no texts, is told apart from a server that is none.
func TestText_OfAnOlderDashboard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		n.serve("a:80", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answers(http.StatusOK, api.Status{Header: header()}).ServeHTTP(w, r)
		}))
		got := n.run("http://a", "status")
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.errors, "it is not the text that was asked for; -o json may work")
		require.Equal(t, exitDone, n.run("http://a", "status", "-o", "json").code)
	})
}

// A text of a server that is no dashboard cannot move the cursor.
func TestText_IsEscaped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		n.serve("a:80", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			text(w, api.Text{Header: header()}, "a\x1b[2J\u202e\nb\n")
		}))
		require.Equal(t, result{exitDone, "a\\u001b[2J\\u202e\nb\n", ""}, n.run("http://a", "status"))
	})
}

// The text of watch is that of terms, and changes of the state within a term.
func TestWatch_GoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		var term atomic.Uint64
		term.Store(1)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			head := header()
			head.Term.Number = term.Load()
			if strings.HasSuffix(r.URL.Path, "changes") {
				news := ""
				if r.URL.Query().Get("newer") == "1-1" {
					news = "a change\n"
				}
				text(w, api.Text{Header: head}, news)
				return
			}
			text(w, api.Text{Header: head}, fmt.Sprintf("ok: In term %d.\n", min(head.Term.Number, 2)))
		})
		stop := n.serve("a:80", h)
		ctx, cancel := context.WithCancel(t.Context())
		p, out, errs := n.process()
		code := make(chan int)
		go func() { code <- p.run(ctx, []string{"watch", "-server", "http://a"}) }()
		time.Sleep(1500 * time.Millisecond)
		stop()
		time.Sleep(5 * time.Second)
		term.Store(2)
		n.serve("a:80", h)
		time.Sleep(2 * time.Second)
		term.Store(3)
		time.Sleep(2 * time.Second)
		cancel()
		require.Equal(t, exitDone, <-code)
		require.Equal(t, "1999-12-31 23:59:59 UTC  term 1 of epoch 1: ok: In term 1.\n"+
			"a change\n"+
			"2000-01-01 00:00:06 UTC  term 2: ok: In term 2.\n", out.String())
		require.Equal(t, "orchctl: http://a: connection refused; does the process run, and is the address right?; asking again every 1s\norchctl: http://a answers again\n", errs.String())
	})
}

// A request that fails between two answers costs no change.
func TestWatch_LosesNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		var requests, lists atomic.Uint64
		n.serve("a:80", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			head := header()
			head.Term.Number = min(requests.Add(1), 2)
			switch {
			case !strings.HasSuffix(r.URL.Path, "changes"):
				text(w, api.Text{Header: head}, "ok: x\n")
			case lists.Add(1) == 1:
				problem(http.StatusServiceUnavailable, "This process does not lead.", "").ServeHTTP(w, r)
			default:
				text(w, api.Text{Header: head, Page: api.Page{After: "more"}, Rows: 1}, "the change\n")
			}
		}))
		ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
		defer cancel()
		p, out, errs := n.process()
		require.Equal(t, exitDone, p.run(ctx, []string{"watch", "-server", "http://a"}))
		require.Equal(t, 1, strings.Count(out.String(), "the change\n"), out)
		require.Contains(t, errs.String(), "only the last 1 are shown")
	})
}
