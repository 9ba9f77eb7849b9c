package e2e_test

// The journal's events about completions.

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

// checkCompletions checks the completions in the journal, and fails the test if
// checkEvents returns an error.
func (f *fleet) checkCompletions() completions {
	f.T.Helper()
	f.Look()
	v, err := checkEvents(f.Events)
	require.NoError(f.T, err)
	return v
}

// completions is the summary of the completions in a journal.
type completions struct {
	recorded map[string]string // by task: the saved completion
	again    int               // starts of a task after its completion was recorded
}

// checkEvents checks that each recorded completion belongs to a task that has
// completed, and was recorded once for each version. It must not have been changed
// or lost later, from one manager to the next.
func checkEvents(events []proctest.Event) (completions, error) {
	v := completions{recorded: map[string]string{}}
	type work struct {
		task    string
		version uint64
	}
	done := map[work]bool{}
	seen := map[string]string{} // by the starting manager
	for _, e := range events {
		switch e.Kind {
		case proctest.Started:
			if v.recorded[e.Task] != "" {
				v.again++
			}
		case did:
			done[work{e.Task, e.Token}] = true
		case recorded, found:
			var c struct{ Revision uint64 }
			if err := json.Unmarshal([]byte(e.Text), &c); err != nil {
				return v, fmt.Errorf("completion of %s: %w", e.Task, err)
			}
			before, known := v.recorded[e.Task]
			switch {
			case !done[work{e.Task, c.Revision}]:
				return v, fmt.Errorf("task %s is recorded as completed in version %d, but has not completed", e.Task, c.Revision)
			case known && e.Kind == recorded:
				return v, fmt.Errorf("task %s is recorded twice: %s, then %s", e.Task, before, e.Text)
			case known && before != e.Text:
				return v, fmt.Errorf("task %s was recorded as %s, and is now %s", e.Task, before, e.Text)
			}
			v.recorded[e.Task] = e.Text
			if e.Kind == found {
				seen[e.Task] = e.Text
			}
		case forgotten:
			return v, fmt.Errorf("completion of task %s was deleted", e.Task)
		case serves:
			if len(seen) != len(v.recorded) {
				return v, fmt.Errorf("a manager found %d of %d completions", len(seen), len(v.recorded))
			}
			seen = map[string]string{}
		}
	}
	return v, nil
}

// runsOf counts the runs of each task with a prefix.
func (f *fleet) runsOf(prefix string) map[string]int {
	f.Look()
	n := map[string]int{}
	for _, r := range f.History.Runs() {
		if strings.HasPrefix(r.Task, prefix) {
			n[r.Task]++
		}
	}
	return n
}

func TestCompletions_CheckFindsWhatIsWrong(t *testing.T) {
	at := func(kind, task, text string) proctest.Event {
		return proctest.Event{Kind: kind, Task: task, Token: 7, Text: text}
	}
	const seven, other, eight = `{"revision":7,"worker":"a"}`, `{"revision":7,"worker":"b"}`, `{"revision":8}`
	for name, c := range map[string]struct {
		wrong  string // part of the error; empty: no error
		events []proctest.Event
	}{
		"correct": {"", []proctest.Event{
			at(serves, "", ""), at(did, "x", ""), at(recorded, "x", seven), at(found, "x", seven), at(serves, "", ""),
		}},
		"found first":   {"", []proctest.Event{at(did, "x", ""), at(found, "x", seven), at(serves, "", "")}},
		"never done":    {"has not completed", []proctest.Event{at(recorded, "x", seven)}},
		"other version": {"has not completed", []proctest.Event{at(did, "x", ""), at(recorded, "x", eight)}},
		"twice":         {"twice", []proctest.Event{at(did, "x", ""), at(recorded, "x", seven), at(recorded, "x", seven)}},
		"found, and recorded": {"twice", []proctest.Event{
			at(did, "x", ""), at(found, "x", seven), at(serves, "", ""), at(recorded, "x", other),
		}},
		"changed": {"is now", []proctest.Event{at(did, "x", ""), at(recorded, "x", seven), at(found, "x", other)}},
		"lost":    {"0 of 1 completions", []proctest.Event{at(did, "x", ""), at(recorded, "x", seven), at(serves, "", "")}},
		"gone":    {"was deleted", []proctest.Event{at(did, "x", ""), at(recorded, "x", seven), at(forgotten, "x", "")}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := checkEvents(c.events)
			if c.wrong == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.wrong)
		})
	}
}
