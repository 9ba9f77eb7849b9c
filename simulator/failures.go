package simulator

// The review of errors: what a term returns names everything that has failed in
// it, and nothing else (T11).

import (
	"cmp"
	"errors"
	"slices"

	"github.com/f8949c05/orchestrator"
)

// failure is what a CallError is about.
type failure struct {
	op orchestrator.Op
	writeKey
}

// checkFailures holds the term's error against the calls that have failed. A
// term that is deposed lets go of calls in flight, and says nothing of them.
func (r *review) checkFailures() {
	if r.cut() || errors.Is(r.stats.Err, orchestrator.ErrDeposed) {
		return
	}
	want := make(map[failure]error)
	either := make(map[failure]bool) // what is expected has changed in the very moment
	for name, s := range r.l.mind.seats {
		if s.answered != r.stats.Term.Number {
			want[failure{orchestrator.OpList, writeKey{"", name}}] = nil
		}
	}
	for _, c := range r.own() {
		at := c.settled()
		if c.op == orchestrator.OpList || !c.fails(at) || c.returned.Equal(at) && stopUnderWay(c.err) {
			continue
		}
		err := orchestrator.ErrSilent
		if c.returned.Equal(at) {
			err = c.err
			if c.op == orchestrator.OpAdd && certainlyNot(c.err) {
				v := r.l.viewAt(at)
				_, expected := v.tasks[c.task]
				if either[failure{c.op, writeKey{c.task, c.worker}}] = v.at.Equal(at); v.at.Equal(at) || !expected {
					continue // nobody wants it any more
				}
			}
		}
		want[failure{c.op, writeKey{c.task, c.worker}}] = err
	}
	got := r.failures()
	for _, f := range sortedFailures(want) {
		switch err, ok := got[f]; {
		case !ok:
			r.fail(Told, "%v %s %s has failed, and the term's error does not say so: %v", f.op, f.task, f.worker, said(r.stats.Err))
		case want[f] != nil && !errors.Is(err, want[f]):
			r.fail(Told, "%v %s %s has failed, %v; the term's error says: %v", f.op, f.task, f.worker, want[f], err)
		}
	}
	for _, f := range sortedFailures(got) {
		if _, ok := want[f]; !ok && !either[f] {
			r.fail(Told, "the term's error says that %v %s %s has failed, and it has not", f.op, f.task, f.worker)
		}
	}
}

// failures returns what the term's error holds, but for the end of its context.
func (r *review) failures() map[failure]error {
	got := make(map[failure]error)
	var whole *orchestrator.TermError
	if !errors.As(r.stats.Err, &whole) {
		return got
	}
	for i, err := range whole.Failures {
		var call *orchestrator.CallError[string, string]
		switch {
		case errors.As(err, &call):
			got[failure{call.Op, writeKey{call.Task, call.Worker}}] = call.Err
		case i > 0 || r.l.cause == nil || !errors.Is(err, r.l.cause):
			r.fail(Told, "the term's error holds what is no failed call: %v", err)
		}
	}
	if whole.Term != r.stats.Term {
		r.fail(Told, "the term's error is that of %v", whole.Term)
	}
	return got
}

func sortedFailures(all map[failure]error) []failure {
	var keys []failure
	for f := range all {
		keys = append(keys, f)
	}
	slices.SortFunc(keys, func(a, b failure) int {
		return cmp.Or(cmp.Compare(a.op, b.op), cmp.Compare(a.worker, b.worker), cmp.Compare(a.task, b.task))
	})
	return keys
}
