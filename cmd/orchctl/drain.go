package main

// Drains: drain and undrain.

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
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
		var plan api.WhatIf
		if err := s.mayWrite(ctx); err != nil {
			return err
		}
		if err := s.plan(ctx, url.Values{"drain": names}, &plan); err != nil {
			return err
		}
		s.say("%s", s.planText(&plan))
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
	if err := s.get(ctx, "settings", nil, &a); err != nil {
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
		if err := d.request(ctx, method, "drain", url.Values{"worker": {n}}, &a); err != nil {
			return err
		}
		since := orchestrator.Term{Epoch: term.Epoch}
		d.workers = append(d.workers, drained{Worker: n, Draining: a.Draining, since: since, told: term})
		if a.Draining {
			d.say("%s drains", name(n))
		} else {
			d.say("%s no longer drains", name(n))
		}
	}
	return nil
}

// show prints the workers.
func (d *draining) show() error {
	if len(d.workers) == 0 { // the first one was refused
		return nil
	}
	return d.session.show(d.workers, column(d.workers, func(w *drained) string { return w.Worker }), func() string {
		var rows [][]string
		for _, w := range d.workers {
			state := "open"
			switch {
			case w.Empty:
				state = "empty"
			case w.Draining:
				state = "draining"
			}
			rows = append(rows, []string{name(w.Worker), state})
		}
		return d.screen.table([]string{"worker", "state"}, rows)
	})
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
				left = append(left, name(w.Worker))
			}
		}
		switch {
		case len(left) == 0:
			return nil
		case pause(ctx, askEvery):
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
	answered, err := d.ask(ctx, false, func() error { return d.get(ctx, "worker", url.Values{"name": {w.Worker}}, &a) })
	if exitCode(err) == exitUnknown {
		d.say("%s has left", name(w.Worker))
		w.Empty = true
		return nil
	}
	if !answered || a.Term.Number == 0 {
		return err
	}
	if answered, err = d.moves(ctx, w, &a); !answered {
		return err
	}
	if w.since.Number == 0 && w.since.Epoch == a.Term.Epoch {
		w.since = a.Term
	}
	switch {
	case a.State == orchestrator.Lost:
		d.say("%s is lost: its tasks start elsewhere", name(w.Worker))
		w.Empty = true
	case a.Draining:
		w.begun, w.since = true, a.Term
		// Without an answer of this term, it may run tasks that are not known.
		w.Empty = a.Tasks == 0 && a.State == orchestrator.Answering && !a.Late
	case w.since.Epoch != a.Term.Epoch:
		d.say("%s no longer drains, because a new leader does not know of the drain; setting it again", name(w.Worker))
		if answered, err = d.ask(ctx, false, func() error {
			return d.request(ctx, http.MethodPost, "drain", url.Values{"worker": {w.Worker}}, new(api.Drain))
		}); answered {
			w.begun, w.since = false, a.Term
		}
		return err
	case w.begun || a.Term.Number > w.since.Number+1: // the term after w.since may have begun before the drain
		w.Draining = false
		return fail(exitFailed, "%s no longer drains: it was undrained, or the leader has forgotten the drain", name(w.Worker))
	}
	return nil
}

// moves reports the changes that took tasks from a worker, up to the term of its answer.
func (d *draining) moves(ctx context.Context, w *drained, now *api.WorkerDetail) (answered bool, err error) {
	if now.Term.Compare(w.told) <= 0 {
		return true, nil
	}
	var a api.Changes
	query := url.Values{"worker": {now.Name.Name}, "limit": {strconv.Itoa(maxRows)}}
	if answered, err := d.ask(ctx, false, func() error { return d.get(ctx, "changes", query, &a) }); !answered {
		return false, err
	}
	for _, c := range slices.Backward(a.Changes) {
		if c.Term.Compare(w.told) > 0 && c.Change.From == now.Name.Name && c.Change.Kind.Op != orchestrator.Start {
			d.say("%s", changeText(&c))
		}
	}
	w.told = a.Term
	return true, nil
}

// maxStaying bounds the tasks that are named when the wait is over.
const maxStaying = 20

// stays says which tasks a worker still has, and why.
func (d *draining) stays(ctx context.Context, w *drained) {
	var a api.WorkerDetail
	var t api.Tasks
	limit := []string{strconv.Itoa(maxRows)}
	if err := d.get(ctx, "worker", url.Values{"name": {w.Worker}, "limit": limit}, &a); err != nil {
		d.say("orchctl: %v", err)
		return
	}
	if err := d.get(ctx, "tasks", url.Values{"waiting": {"any"}, "limit": limit}, &t); err != nil {
		d.say("orchctl: %v", err)
		return
	}
	reasons := make(map[api.Name]string)
	for _, task := range t.Tasks {
		for _, wait := range task.Waiting {
			if wait.Named && wait.Worker == a.Name.Name {
				reasons[task.Name] = api.Printable(string(wait.Reason))
			}
		}
	}
	if a.LastAnswer.IsZero() {
		d.say("%s is %s and may have tasks: it has not answered this leader", name(w.Worker), stateText(&a.Worker))
		return
	}
	var rows [][]string
	for _, task := range a.Running[:min(len(a.Running), maxStaying)] {
		reason := reasons[task.Name]
		if reason == "" {
			reason = "its move has not ended"
		}
		rows = append(rows, []string{shown(task.Name), reason})
	}
	d.say("%s is %s and has %s:", name(w.Worker), stateText(&a.Worker), plural(a.Tasks, "task"))
	d.say("%s", screen{}.table([]string{"task", "stays because"}, rows))
	if more := a.Tasks - len(rows); more > 0 {
		d.say("and %s", plural(more, "more task"))
	}
}
