package main

// Plans: what-if.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator/dashboard/api"
)

func whatIf(f *flag.FlagSet) action {
	query := url.Values{}
	for _, flag := range []struct{ name, usage string }{
		{"drain", "assume that this `worker` drains"},
		{"undrain", "assume that this `worker` no longer drains"},
		{"lose", "assume that this `worker` is lost"},
		{"silence", "assume that this `worker` does not answer"},
		{"add", "assume that a `worker` of this name joins"},
	} {
		f.Func(flag.name, flag.usage+"; may be repeated", func(value string) error {
			query.Add(flag.name, value)
			return nil
		})
	}
	return func(ctx context.Context, s *session, _ []string) error {
		var a api.WhatIf
		if err := s.plan(ctx, query, &a); err != nil {
			return err
		}
		return s.show(a, column(a.Plan.Changes, func(c *api.Change) string { return c.Task }), func() string { return s.planText(&a) })
	}
}

// plan asks what the next term would do. The dashboard computes one plan at a time, so plan
// asks again while that of another caller is under way.
func (s *session) plan(ctx context.Context, query url.Values, a *api.WhatIf) error {
	for end := time.Now().Add(s.timeout); ; {
		err := s.get(ctx, "what-if", query, a)
		if !errors.Is(err, errBusy) || time.Until(end) < askEvery || !pause(ctx, askEvery) {
			return err
		}
	}
}

func (s *session) planText(a *api.WhatIf) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", api.Printable(a.Verdict))
	var rows [][]string
	for _, c := range a.Plan.Changes {
		rows = append(rows, changeRow("", &api.RepeatedChange{Change: c})[1:5])
	}
	section(&b, s.screen.table([]string{"change", "task", "workers", "reason"}, rows))
	more(&b, a.ChangesTotal-len(rows), "more change")

	rows = nil
	for _, w := range a.Plan.Waiting {
		rows = append(rows, waitingRow(name(w.Task), &w))
	}
	section(&b, s.screen.table(waitingHeading(), rows))
	more(&b, a.WaitingTotal-len(rows), "more waiting task")

	section(&b, s.pauses(a.Plan.Paused))
	more(&b, a.PausedTotal-len(a.Plan.Paused), "more pause")

	rows = nil
	for _, w := range a.Plan.Workers {
		state := stateText(&api.Worker{State: w.State, Late: w.Late, Draining: w.Draining, Quarantined: w.Quarantined})
		rows = append(rows, []string{name(w.Name), state, strconv.Itoa(w.Before), strconv.Itoa(w.After)})
	}
	section(&b, s.screen.table([]string{"worker", "state", "before", "after"}, rows))
	more(&b, a.WorkersTotal-len(rows), "more worker")
	return b.String()
}
