package main

// Commands that go on: asking again, and watch.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/internal/backoff"
)

// askEvery is the interval at which commands ask again.
const askEvery = time.Second

func watch(*flag.FlagSet) action {
	return func(ctx context.Context, s *session, _ []string) error {
		w := watching{session: s}
		for first := true; ; first = first && w.told.Number == 0 {
			err := w.look(ctx, first)
			switch {
			case ctx.Err() != nil:
				return nil // an interrupt is the way to end it
			case err != nil:
				return err
			}
			backoff.Sleep(ctx, askEvery)
		}
	}
}

// watching is what watch has printed.
type watching struct {
	*session
	told  orchestrator.Term // the changes up to this term
	epoch uint64            // the leader of line
	line  string            // the state of the fleet
}

// look prints the changes of new terms, and the state of the fleet if it is another one.
func (w *watching) look(ctx context.Context, first bool) error {
	a, err := w.ask(ctx, first, func() (*reply, error) { return w.request(ctx, http.MethodGet, "status", nil, w.accept("check")) })
	if a == nil {
		return err
	}
	isNew := first || a.Term != w.told
	if w.settings.format == formatJSON {
		if w.told = a.Term; !isNew {
			return nil
		}
		return w.print(a.body)
	}
	if isNew && !first {
		news, err := w.ask(ctx, false, func() (*reply, error) { return w.changes(ctx, url.Values{}, "news", w.told) })
		if news == nil {
			return err
		}
		w.told = news.Term
		if err := w.put(news.body); err != nil {
			return err
		}
	} else if first {
		w.told = a.Term
	}
	line, leader := string(a.body), ""
	if w.epoch != a.Term.Epoch {
		leader = fmt.Sprintf(" of epoch %d", a.Term.Epoch)
	}
	if leader == "" && line == w.line {
		return nil
	}
	w.line, w.epoch = line, a.Term.Epoch
	return w.put(fmt.Appendf(nil, "%s  term %d%s: %s", clock(a.Start), a.Term.Number, leader, line))
}

// changes asks for the changes after a term, which a view shows line by line.
func (s *session) changes(ctx context.Context, query url.Values, view string, after orchestrator.Term) (*reply, error) {
	query.Set("limit", strconv.Itoa(maxRows))
	query.Set("newer", fmt.Sprintf("%d-%d", after.Epoch, after.Number))
	a, err := s.request(ctx, http.MethodGet, "changes", query, "text/plain; view="+view)
	if err == nil && a.After != "" {
		s.say("orchctl: too many changes at once: only the last %d are shown", a.Rows)
	}
	return a, err
}

// clock returns a time, or "-" if t is zero.
func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return api.Clock(t)
}

// ask calls get for a command that goes on without an answer. It says when answers stop and
// when they begin again, and returns nil then. The first failure of the command is returned, and so is
// every failure that is not the lack of an answer.
func (s *session) ask(ctx context.Context, first bool, get func() (*reply, error)) (*reply, error) {
	a, err := get()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err == nil:
		if s.silent {
			s.say("orchctl: %s answers again", s.last.shown)
		}
		s.silent = false
		return a, nil
	case first || exitCode(err) != exitUnreachable:
		return nil, err
	case !s.silent:
		s.say("orchctl: %v; asking again every %v", err, askEvery)
	}
	s.silent = true
	return nil, nil
}

// patiently calls ask until the dashboard is not busy. It computes one plan at a time.
func (s *session) patiently(ctx context.Context, ask func() error) error {
	for end := time.Now().Add(s.timeout); ; {
		err := ask()
		if !errors.Is(err, errBusy) || time.Until(end) < askEvery || !backoff.Sleep(ctx, askEvery) {
			return err
		}
	}
}
