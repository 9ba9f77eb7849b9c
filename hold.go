package orchestrator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/f8949c05/orchestrator/internal/term"
)

// Hold is why moves for an even spread wait in a term. Missing instances start, and drains and
// evictions go on.
type Hold struct {
	// Why is the text given to [Orchestrator.Hold], that workers are silent, of which it names the
	// first, or that the weights are not known yet ([WithReportedWeights]).
	Why string `json:"why"`
	// Until is when the hold ends at the latest; zero means that this is not known.
	Until time.Time `json:"until,omitzero"`
}

// String returns one line, such as "worker w3 is silent, until 2026-11-27 10:20:30 UTC at the latest".
func (h Hold) String() string {
	why := strings.Join(strings.FieldsFunc(h.Why, func(r rune) bool { return !unicode.IsPrint(r) }), " ")
	if h.Until.IsZero() {
		return why
	}
	return why + ", until " + utc(h.Until) + " at the latest"
}

// utc returns a time as text.
func utc(t time.Time) string { return t.UTC().Format(time.DateTime + " UTC") }

// notWeighed is the hold of a leader that does not know the weights yet.
const notWeighed = "the weights are not known yet"

// Hold makes moves for an even spread wait until a time: during an incident, or a rolling
// update, which then moves a task once if new workers join first. Missing instances start, and
// drains and evictions go on; other instances move only to make room for them.
//
// There is one hold for each why, which [Plan].Holds shows; an empty one stands for "held". Another
// call with the same why replaces it. One with a time that is not in the future, such as the zero
// time, ends it; under Run that starts a term. A why of which there is no hold ends nothing, so keep
// the text. Moves wait as long as any hold lasts. Holds end with the orchestrator.
func (o *Orchestrator[W, T]) Hold(until time.Time, why string) {
	why = strings.Clone(cmp.Or(why, "held"))
	o.change(func() bool {
		_, held := o.holds[why]
		o.holds[why] = until // the next term holds, or ends the hold
		return held && !until.After(time.Now())
	})
}

// holdsAt returns the holds that last, in the order of their texts, and drops the others.
// The caller holds o.mu.
func (o *Orchestrator[W, T]) holdsAt(now time.Time, weighed bool) (holds []term.Hold) {
	if o.cfg.ReportedWeights && !weighed {
		holds = append(holds, term.Hold{Why: notWeighed})
	}
	maps.DeleteFunc(o.holds, func(_ string, until time.Time) bool { return !until.After(now) })
	for _, why := range slices.Sorted(maps.Keys(o.holds)) {
		holds = append(holds, term.Hold{Why: why, Until: o.holds[why]})
	}
	return holds
}

// holdsOf returns the holds of the term in their public form.
func (t *termRun[W, T]) holdsOf() (holds []Hold) {
	for _, h := range t.decision.Holds {
		if more := len(h.Silent) - 1; more >= 0 {
			h.Why = fmt.Sprintf("worker %v is silent", t.workers[h.Silent[0]].name)
			if more > 0 {
				h.Why = fmt.Sprintf("worker %v and %d more are silent", t.workers[h.Silent[0]].name, more)
			}
		}
		holds = append(holds, Hold{h.Why, h.Until})
	}
	return holds
}
