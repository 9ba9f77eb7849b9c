package main

// Drains: drain and undrain.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/internal/backoff"
)

func drain(f *flag.FlagSet) action {
	yes := f.Bool("yes", false, "do not ask; needed without a terminal")
	detach := f.Bool("detach", false, "do not wait until the workers are empty")
	wait := f.Duration("wait", 10*time.Minute, "the longest time to wait until the workers are empty")
	return func(ctx context.Context, s *session, names []string) error {
		if !s.asks && !*yes {
			return fail(exitUsage, "drain: no terminal to ask on: give -yes")
		}
		names = slices.Compact(slices.Sorted(slices.Values(names)))
		var plan *reply
		if err := s.mayWrite(ctx); err != nil {
			return err
		}
		if err := s.patiently(ctx, func() (err error) {
			plan, err = s.request(ctx, http.MethodGet, "what-if", url.Values{"drain": names}, "text/plain")
			return err
		}); err != nil {
			return err
		}
		s.say("%s", s.escaped(plan.body))
		if !*yes {
			if err := s.confirm(ctx, fmt.Sprintf("Drain %s?", plural(len(names), "worker"))); err != nil {
				return err
			}
		}
		d := draining{session: s}
		err := d.set(ctx, http.MethodPost, names, plan.Term)
		if err == nil && !*detach {
			limited, cancel := context.WithTimeoutCause(ctx, *wait, errLate)
			defer cancel()
			err = d.wait(limited)
		}
		return errors.Join(err, d.show())
	}
}

func undrain(*flag.FlagSet) action {
	return func(ctx context.Context, s *session, names []string) error {
		if err := s.mayWrite(ctx); err != nil {
			return err
		}
		d := draining{session: s}
		return errors.Join(d.set(ctx, http.MethodDelete, names, orchestrator.Term{}), d.show())
	}
}

// mayWrite returns an error if the dashboard does not let the caller drain workers.
func (s *session) mayWrite(ctx context.Context) error {
	var a api.Settings
	if err := s.read(ctx, http.MethodGet, "settings", nil, &a); err != nil {
		return err
	}
	if !a.Writable {
		return fail(exitFailed, "%s: the dashboard is read-only for this caller", s.last.shown)
	}
	return nil
}

// confirm asks a question and returns an error unless the answer is yes.
func (s *session) confirm(ctx context.Context, question string) error {
	_, _ = fmt.Fprint(s.stderr, question+" [y/N] ")
	answered := make(chan string, 1)
	go func() { // ends with the answer, or with the process
		line, _ := bufio.NewReader(s.stdin).ReadString('\n') // no line means no
		answered <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-answered:
		if answer == "y" || answer == "yes" {
			return nil
		}
		return fail(exitFailed, "nothing was drained")
	case <-ctx.Done():
		s.say("")
		return fail(exitFailed, "interrupted, nothing was drained")
	}
}

var errLate = errors.New("the wait is over")

// draining is workers that drain.
type draining struct {
	*session
	workers []drained
}

// drained is a worker that drains, and what was said of it. Its JSON is the output.
type drained struct {
	Worker   string `json:"worker"`
	Draining bool   `json:"draining"`
	Empty    bool   `json:"empty"`

	begun bool // a term has found it draining
	// since is the last term that found it draining, or else the first one seen after the
	// drain was set. Before that it is only the epoch.
	since orchestrator.Term
	told  orchestrator.Term // the changes up to this term were reported
}

// set drains or undrains workers. A term is the last one before.
func (d *draining) set(ctx context.Context, method string, names []string, term orchestrator.Term) error {
	for _, n := range names {
		var a api.Drain
		if err := d.read(ctx, method, "drain", url.Values{"worker": {n}}, &a); err != nil {
			return err
		}
		since := orchestrator.Term{Epoch: term.Epoch}
		d.workers = append(d.workers, drained{Worker: n, Draining: a.Draining, since: since, told: term})
		if a.Draining {
			d.say("%s drains", n)
		} else {
			d.say("%s no longer drains", n)
		}
	}
	return nil
}

// show prints the workers.
func (d *draining) show() error {
	if len(d.workers) == 0 { // the first one was refused
		return nil
	}
	if d.settings.format == formatJSON {
		encoded, err := json.Marshal(d.workers)
		return errors.Join(err, d.put(indented(encoded)))
	}
	var out bytes.Buffer
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	if d.settings.format == formatTable {
		_, _ = fmt.Fprintln(table, "worker\tstate") // into a buffer
	}
	for _, w := range d.workers {
		state := "\topen"
		switch {
		case d.settings.format == formatName:
			state = ""
		case w.Empty:
			state = "\tempty"
		case w.Draining:
			state = "\tdraining"
		}
		_, _ = fmt.Fprintln(table, w.Worker+state)
	}
	_ = table.Flush()
	return d.put(out.Bytes())
}

// wait reports the moves away from the workers until they are empty or ctx ends.
func (d *draining) wait(ctx context.Context) error {
	for {
		var left []string
		for i := range d.workers {
			w := &d.workers[i]
			if !w.Empty {
				if err := d.look(ctx, w); err != nil && ctx.Err() == nil {
					return err
				}
			}
			if !w.Empty {
				left = append(left, w.Worker)
			}
		}
		switch {
		case len(left) == 0:
			return nil
		case backoff.Sleep(ctx, askEvery):
		case errors.Is(context.Cause(ctx), errLate):
			for i := range d.workers {
				if w := &d.workers[i]; !w.Empty {
					d.stays(context.WithoutCancel(ctx), w)
				}
			}
			return fail(exitLate, "the wait is over, and not empty yet: %s; the drain goes on", strings.Join(left, ", "))
		default:
			return fail(exitLate, "interrupted; the drain goes on: %s; orchctl undrain ends it", strings.Join(left, ", "))
		}
	}
}

// look asks for a worker, and reports its moves.
func (d *draining) look(ctx context.Context, w *drained) error {
	var a api.WorkerDetail
	query := url.Values{"name": {w.Worker}}
	answer, err := d.ask(ctx, false, func() (*reply, error) { return d.request(ctx, http.MethodGet, "worker", query, "application/json") })
	if exitCode(err) == exitUnknown {
		d.say("%s has left", w.Worker)
		w.Empty = true
		return nil
	}
	if answer == nil || answer.Term.Number == 0 {
		return err
	}
	if err := json.Unmarshal(answer.body, &a); err != nil {
		return foreign(d.last, "worker", err)
	}
	if a.Term.Compare(w.told) > 0 {
		moves, err := d.ask(ctx, false, func() (*reply, error) { return d.changes(ctx, url.Values{"worker": {w.Worker}}, "left", w.told) })
		if moves == nil {
			return err
		}
		if w.told = moves.Term; len(moves.body) > 0 {
			d.say("%s", d.escaped(bytes.TrimSpace(moves.body)))
		}
	}
	if w.since.Number == 0 && w.since.Epoch == a.Term.Epoch {
		w.since = a.Term
	}
	switch {
	case a.State == orchestrator.Lost:
		d.say("%s is lost: its tasks start elsewhere", w.Worker)
		w.Empty = true
	case a.Draining:
		w.begun, w.since = true, a.Term
		// Without an answer of this term, it may run tasks that are not known.
		w.Empty = a.Tasks == 0 && a.State == orchestrator.Answering && !a.Late
	case w.since.Epoch != a.Term.Epoch:
		d.say("%s no longer drains, because a new leader does not know of the drain; setting it again", w.Worker)
		again, err := d.ask(ctx, false, func() (*reply, error) {
			return d.request(ctx, http.MethodPost, "drain", url.Values{"worker": {w.Worker}}, "application/json")
		})
		if again != nil {
			w.begun, w.since = false, a.Term
		}
		return err
	case w.begun || a.Term.Number > w.since.Number+1: // the term after w.since may have begun before the drain
		w.Draining = false
		return fail(exitFailed, "%s no longer drains: it was undrained, or the leader has forgotten the drain", w.Worker)
	}
	return nil
}

// stays says which tasks a worker still has, and why.
func (d *draining) stays(ctx context.Context, w *drained) {
	const most = "20" // tasks
	a, err := d.request(ctx, http.MethodGet, "worker", url.Values{"name": {w.Worker}, "limit": {most}}, "text/plain; view=stays")
	if err != nil {
		d.say("orchctl: %v", err)
		return
	}
	d.say("%s", d.escaped(a.body))
}
