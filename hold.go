package orchestrator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator/internal/term"
)

// Hold is why moves for an even spread wait in a term. Missing instances start, and drains and
// evictions go on.
type Hold struct {
	// Why is the text given to [Orchestrator.Hold], that a worker is silent, or that the weights
	// are not known yet ([WithReportedWeights]).
	Why string `json:"why"`
	// Until is when the hold ends at the latest; zero means that this is not known.
	Until time.Time `json:"until,omitzero"`
}

// String returns for example "worker w3 is silent, at most until 10:20:30".
func (h Hold) String() string {
	if h.Until.IsZero() {
		return h.Why
	}
	return h.Why + ", at most until " + h.Until.Format(time.TimeOnly)
}

// notWeighed is the hold of a leader that does not know the weights yet.
const notWeighed = "the weights are not known yet"

// Hold makes moves for an even spread wait until a time: during an incident, or a rolling
// update, which then moves a task once if new workers join first. Missing instances start, and
// drains and evictions go on; other instances move only to make room for them.
//
// There is one hold for each why, which [Plan].Holds shows. Another call with the same why
// replaces it. One with a time that is not in the future, such as the zero time, ends it, and
// starts a term. Moves wait as long as any hold lasts. Holds end with the orchestrator.
func (o *Orchestrator[W, T]) Hold(until time.Time, why string) {
	o.change(func() bool {
		_, held := o.holds[why]
		if !until.After(time.Now()) {
			delete(o.holds, why)
			return held
		}
		o.holds[strings.Clone(why)] = until
		return false // the next term holds, whenever it comes
	})
}

// holdsAt returns the holds that last, in the order of their texts, and drops the others.
// The caller holds o.mu.
func (o *Orchestrator[W, T]) holdsAt(now time.Time, weighed bool) (holds []term.Hold) {
	if o.cfg.ReportedWeights && !weighed {
		holds = append(holds, term.Hold{Why: notWeighed})
	}
	for why, until := range o.holds {
		if !until.After(now) {
			delete(o.holds, why)
			continue
		}
		holds = append(holds, term.Hold{Why: why, Until: until})
	}
	slices.SortFunc(holds, func(a, b term.Hold) int { return strings.Compare(a.Why, b.Why) })
	return holds
}

// holdsOf returns the holds of the term in their public form.
func (t *termRun[W, T]) holdsOf() (holds []Hold) {
	for _, h := range t.decision.Holds {
		if h.Why == "" {
			h.Why = fmt.Sprintf("worker %v is silent", t.workers[h.Worker].name)
		}
		holds = append(holds, Hold{h.Why, h.Until})
	}
	return holds
}
