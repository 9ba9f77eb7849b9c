package main

// Replays: the answers of a log of package history, as of its end.

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

func replay(*flag.FlagSet) action {
	return func(ctx context.Context, s *session, args []string) error {
		ring, err := history.Open(args[0])
		if err != nil {
			return fmt.Errorf("replay: %s", api.Printable(err.Error()))
		}
		for _, note := range ring.Notes() {
			s.say("%s", api.Printable(note))
		}
		h, err := dashboard.New(dashboard.WithHistory(ring), dashboard.WithAuthorize(func(*http.Request) dashboard.Access { return dashboard.ReadAccess }))
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		h.Replay()
		s.settings.log = handled{h}
		rest := args[1:]
		if len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
			rest = slices.Concat([]string{"terms"}, rest)
		}
		all := slices.DeleteFunc(commands(), func(c command) bool { return !c.replays })
		at := slices.IndexFunc(all, func(c command) bool { return c.name == rest[0] })
		if at < 0 {
			var known []string
			for _, c := range all {
				known = append(known, c.name)
			}
			return fail(exitUsage, "replay: a log has no answer to %q, only to %s", rest[0], strings.Join(known, ", "))
		}
		for t := range ring.View().Terms(orchestrator.Term{}) {
			if t.WaitingMore > 0 && rest[0] == "waiting" {
				s.say("the log has not the last %d tasks that waited", t.WaitingMore)
			}
			break
		}
		if err = s.execute(ctx, &all[at], s.settings, rest[1:]); exitCode(err) == exitUnknown {
			return fail(exitUnknown, "%w at its end; orchctl replay FILE changes may show an earlier one", err)
		}
		return err
	}
}

// handled answers requests by a handler of this process.
type handled struct{ http.Handler }

// client returns a client that asks the handler.
func (h handled) client(s *settings) *client {
	common := &http.Client{Transport: h}
	return &client{timeout: s.timeout, common: common, servers: []*server{{base: &url.URL{Scheme: "http", Host: "log"}, http: common, shown: "the log"}}}
}

func (h handled) RoundTrip(r *http.Request) (*http.Response, error) {
	a := &recorded{Response: http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Request: r}}
	h.ServeHTTP(a, r)
	a.Body = io.NopCloser(&a.written)
	return &a.Response, nil
}

// recorded is an answer of a handler.
type recorded struct {
	http.Response
	written bytes.Buffer
}

func (a *recorded) Header() http.Header         { return a.Response.Header }
func (a *recorded) WriteHeader(status int)      { a.StatusCode = status }
func (a *recorded) Write(p []byte) (int, error) { return a.written.Write(p) }
