package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator"
	"github.com/f8949c05/orchestrator/history"
)

// TestD3_ReadersAndTerms reads while terms end. Under the race detector it shows that views
// do not change.
func TestD3_ReadersAndTerms(t *testing.T) {
	ring := func() (*history.Ring, error) { return history.New(history.WithTerms(8), history.WithChanges(20)) }
	inBubble(t, ring, workers, tasks, func(t *testing.T, f *fleet) {
		var readers sync.WaitGroup
		stop := make(chan struct{})
		for range 2 {
			readers.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(250 * time.Millisecond): // some of them when terms end
					}
					v := f.ring.View()
					before := show(v, workers[:1], tasks[:1])
					require.Equal(t, before.Terms, show(v, nil, nil).Terms)
					for _, l := range before.Loads[workers[0]] {
						_, _, ok := v.Term(l.Term)
						require.True(t, ok, "a load of a term that the view does not have")
					}
				}
			})
		}
		f.live(rand.New(rand.NewPCG(2, 2)), 50)
		close(stop)
		readers.Wait()
	})
}

// A term in which the moves that wait, or why they wait, differ from the term before is recorded,
// and so is the pause of a worker that fell, without a task.
func TestRecord_HoldsAndFalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	inBubble(t, logged(path), workers[:2], tasks[:4], func(t *testing.T, f *fleet) {
		f.terms(3)
		recorded := func() int { return f.ring.View().Counts().Terms }
		n, until := recorded(), time.Now().Add(time.Hour)
		for i, why := range []string{"deploy\n", "backup"} {
			f.Hold(until, why)
			f.terms(3)
			require.Equal(t, n+i+1, recorded(), "the others are quiet")
		}
		f.Start("w9")
		require.NoError(t, f.AddWorker("w9"))
		for range 2 {
			f.terms(2)
			f.RemoveWorker("w1")
			f.terms(1)
			require.NoError(t, f.AddWorker("w1"))
		}
		f.terms(2)
		require.NoError(t, f.ring.Close())
		replayed, err := history.Open(path)
		require.NoError(t, err)
		for _, v := range []*history.View{f.ring.View(), replayed.View()} {
			for term := range v.Terms(orchestrator.Term{}) {
				require.Equal(t, []orchestrator.Hold{{Why: "backup", Until: until.UTC()}, {Why: `deploy\u000a`, Until: until.UTC()}}, term.Holds)
				require.Equal(t, f.LastPlan().Stats.MovesHeld, term.Stats.MovesHeld)
				require.Len(t, term.Paused, 1)
				fallen := f.LastPlan().Paused[0]
				require.Equal(t, history.Pause{
					Kind: orchestrator.PauseFallen, Worker: "w1", Ends: fallen.Ends.UTC(), Failures: 2, Err: errors.New("fell 2 times, less than ten minutes apart"),
				}, term.Paused[0])
				break
			}
		}
	})
}

// TestRecord_Leaders records one leader after another. The second finds a worker missing and
// another one new.
func TestRecord_Leaders(t *testing.T) {
	inBubble(t, inMemory, []string{"w1", "w2"}, []string{"a", "b"}, func(t *testing.T, f *fleet) {
		f.terms(3)
		first := f.Last().Plan().Stats.Term
		require.Empty(t, eventsOf(f.ring, "w1"), "the history begins with it")
		f.Start("w3")
		f.lead()
		require.NoError(t, f.AddWorker("w2"))
		require.NoError(t, f.AddWorker("w3"))
		f.terms(1)
		require.Equal(t, []history.WorkerEvent{{Worker: "w1", Before: &history.Condition{State: orchestrator.Answering}}}, eventsOf(f.ring, "w1"))
		require.Empty(t, eventsOf(f.ring, "w2"))
		require.Equal(t, []history.WorkerEvent{{Worker: "w3", After: &history.Condition{State: orchestrator.Answering}}}, eventsOf(f.ring, "w3"))
		v := f.ring.View()
		last, _ := v.Last()
		require.Greater(t, last.Epoch, first.Epoch)
		_, quiet, ok := v.Term(orchestrator.Term{Epoch: first.Epoch, Number: 1})
		require.True(t, ok)
		require.Equal(t, first, quiet.Last)
		require.Equal(t, []int{1, 0}, loads(v, "w1"))
	})
}

func eventsOf(r *history.Ring, worker string) (events []history.WorkerEvent) {
	for _, e := range r.View().Events(worker) {
		events = append(events, *e)
	}
	return events
}

// TestRecord_LastTerm begins to record between two terms, and stops.
func TestRecord_LastTerm(t *testing.T) {
	inBubble(t, inMemory, []string{"w1"}, []string{"a"}, func(t *testing.T, f *fleet) {
		f.terms(1)
		r, err := history.New()
		require.NoError(t, err)
		stop := history.Record(r, f.Orchestrator)
		require.Equal(t, 1, r.View().Counts().Terms)
		require.NoError(t, f.AddTask("b"))
		f.terms(1)
		require.Equal(t, 2, r.View().Counts().Terms)
		stop()
		stop()
		require.NoError(t, f.AddTask("c"))
		f.terms(1)
		require.Equal(t, 2, r.View().Counts().Terms)
		require.Equal(t, 3, f.ring.View().Counts().Terms)
	})
}

// TestD10_NameText: a name has one text, and different names have different ones.
func TestD10_NameText(t *testing.T) {
	type kind string
	type key struct {
		tenant string
		shard  int
	}
	require.Equal(t, []string{"w1", "w1", "7", "200", `history_test.key{tenant:"a b", shard:7}`},
		[]string{history.NameText("w1"), history.NameText(kind("w1")), history.NameText(7), history.NameText(uint8(200)), history.NameText(key{"a b", 7})})
	long := strings.Repeat("漢", 200)
	texts := make(map[string]bool)
	for _, name := range []string{"", `""`, "a\n", `a\n`, `"a\n"`, `a\u000a`, "\xff", `\xff`, "\u202e", long, long + "x", long[:510] + "…", long[:477]} {
		text := history.NameText(name)
		require.Equal(t, text, history.Printable(text))
		require.NotEmpty(t, text)
		require.NotContains(t, texts, text)
		texts[text] = true
	}
}

// name is a name with the MarshalText of another one.
type name struct{ part, text string }

func (n name) MarshalText() ([]byte, error) {
	if n.text == "bad" {
		return nil, errors.New("bad")
	}
	return []byte(n.text), nil
}

// TestD10_Names records names of other types, and two workers with the same text.
func TestD10_Names(t *testing.T) {
	lists := map[name][]int{{"1", "w"}: {1}, {"2", "w"}: {2, 3}, {"3", "bad"}: {4}}
	o, err := orchestrator.New(&communicator.Func[name, int]{
		ListFunc: func(_ context.Context, w name) ([]int, error) { return lists[w], nil },
	}, orchestrator.WithDryRun())
	require.NoError(t, err)
	r, err := history.New()
	require.NoError(t, err)
	defer history.Record(r, o)()
	for _, w := range []name{{"1", "w"}, {"2", "w"}, {"3", "bad"}} {
		require.NoError(t, o.AddWorker(w))
	}
	require.NoError(t, o.AddTask(9))
	require.NoError(t, o.NextTerm(t.Context()))
	v := r.View()
	require.Equal(t, []int{1}, loads(v, "w"), "of the first")
	require.Equal(t, []int{1}, loads(v, `history_test.name{part:"3", text:"bad"}`))
	rows, _ := v.Repeated(history.Filter{Task: new("9")}, history.Position{}, 1)
	require.Equal(t, orchestrator.OutcomeDry, rows[0].Change.Outcome)
}

// TestP12_CausesAreRecorded records the causes of waiting, and reads them from a log. In a log
// of an earlier version there are none.
func TestP12_CausesAreRecorded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	r, err := logged(path)()
	require.NoError(t, err)
	given := orchestrator.Waiting[string, string]{
		Task: "render", Instances: 2, Reason: orchestrator.ReasonNoPlace,
		Causes: &orchestrator.Causes{Workers: 9, Lacking: []orchestrator.LabelCount{{Label: "gpu", Workers: 7}}, NoRoom: 2},
	}
	waiting := history.WaitingText(&given)
	require.Equal(t, `of 9 open workers 7 lack "gpu", 2 have no room`, waiting.Causes.String())
	kind := orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonRequires}
	r.Put(&history.Term{
		Stats:   orchestrator.TermStats{Term: orchestrator.Term{Epoch: 1, Number: 1}, EvictionsHeld: 3},
		Changes: []history.Change{{Kind: kind, Task: "render", From: "a", To: "b", Outcome: orchestrator.OutcomeDone}},
		Waiting: []history.Waiting{waiting, {Task: "plain", Instances: 1, Reason: orchestrator.ReasonNoWorker}},
	})
	require.NoError(t, r.Close())

	replayed, err := history.Open(path)
	require.NoError(t, err)
	require.Empty(t, replayed.Notes())
	for term := range replayed.View().Terms(orchestrator.Term{}) {
		require.Equal(t, waiting, term.Waiting[0])
		require.Nil(t, term.Waiting[1].Causes)
		require.Equal(t, kind, term.Changes[0].Kind)
		require.Equal(t, 3, term.Stats.EvictionsHeld)
		return
	}
	require.Fail(t, "no term was read")
}

// TestRing_Bounds makes more changes, events and loads than a ring keeps.
func TestRing_Bounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = history.KeptChanges + 100
		var task string
		o, err := orchestrator.New(&communicator.Func[int, string]{
			ListFunc: func(context.Context, int) ([]string, error) {
				if task == "" {
					return nil, nil
				}
				return []string{task}, nil
			},
			AddFunc: func(context.Context, int, string) error { return errors.New(strings.Repeat("no disk\xff", 100)) },
		}, orchestrator.WithMaxLoss(1))
		require.NoError(t, err)
		r, err := history.New()
		require.NoError(t, err)
		defer history.Record(r, o)()
		require.NoError(t, o.NextTerm(t.Context()))
		members := make([]orchestrator.Worker[int], many)
		for i := range members {
			members[i].Name = i
		}
		require.NoError(t, o.UpdateWorkers(members))
		require.NoError(t, o.AddTask("a", orchestrator.WithTaskInstances(many)))
		_ = o.NextTerm(t.Context())
		last, _ := r.View().Last()
		term, _, _ := r.View().Term(last)
		require.Len(t, term.Changes, history.KeptChanges)
		require.Equal(t, 100, term.ChangesMore)
		require.Len(t, term.Events, history.KeptChanges)
		require.Equal(t, 100, term.EventsMore)
		require.Equal(t, many, term.WaitingInstances[orchestrator.ReasonFailed])
		require.Len(t, term.Waiting, 100)
		require.Equal(t, many-100, term.WaitingMore)
		require.NotEmpty(t, term.PausedKinds)
		require.Len(t, o.LastPlan().Paused, len(term.Paused)+term.PausedMore)
		text := term.Changes[0].Err.Error()
		require.LessOrEqual(t, len(text), history.LongestText)
		require.True(t, utf8.ValidString(text))

		require.NoError(t, o.UpdateWorkers(members[:1]))
		for i := range history.KeptPoints + 10 {
			task = []string{"", "b"}[i%2]
			time.Sleep(time.Second)
			_ = o.NextTerm(t.Context())
		}
		loads := r.View().Load("0")
		require.Len(t, loads, history.KeptPoints)
		require.Equal(t, o.LastPlan().Stats.Term, loads[len(loads)-1].Term)
	})
}

// TestRing_BoundsOfNames removes workers. After each term, the ring has the names of those
// that were removed in the terms that it keeps, and at most 10,000 of them.
func TestRing_BoundsOfNames(t *testing.T) {
	r, err := history.New(history.WithTerms(10))
	require.NoError(t, err)
	for i := range 200 {
		is, was := history.WorkerRow{Name: fmt.Sprint(i), Tasks: 1}, history.WorkerRow{Name: fmt.Sprint(i - 1), Removed: true}
		r.Put(new(history.Term), is, was)
		names, removals := r.Kept()
		require.LessOrEqual(t, names, 10+1)
		require.LessOrEqual(t, removals, 10)
		require.Len(t, r.View().Load(is.Name), 1)
		require.Equal(t, i > 0, len(r.View().Load(was.Name)) > 0)
	}
	for i := range 5 { // the same workers again and again
		var rows []history.WorkerRow
		for n := range history.KeptGone/2 + 1 {
			rows = append(rows, history.WorkerRow{Name: fmt.Sprint("w", n), Removed: i%2 == 1})
		}
		r.Put(new(history.Term), rows...)
		_, removals := r.Kept()
		require.LessOrEqual(t, removals, history.KeptGone)
	}
	names, _ := r.Kept()
	require.LessOrEqual(t, names, history.KeptGone/2+1+10)
	require.NotNil(t, r.View().Load("w0"))
}

// TestRing_DroppedTermsAreFreed checks that the memory of a dropped term and of the changes
// of an old one can be reused, also if a view has seen them.
func TestRing_DroppedTermsAreFreed(t *testing.T) {
	r, err := history.New(history.WithTerms(2), history.WithChanges(1))
	require.NoError(t, err)
	first, second := new(history.Term), &history.Term{Changes: make([]history.Change, 10)}
	dropped, stripped := weak.Make(first), weak.Make(&second.Changes[0])
	r.Put(first)
	r.Put(second)
	require.Equal(t, 2, r.View().Counts().Terms)
	r.Put(&history.Term{Changes: make([]history.Change, 1)})
	runtime.GC()
	require.Nil(t, dropped.Value())
	require.Nil(t, stripped.Value())
	require.Equal(t, 1, r.View().Counts().Changes)
}

// TestRepeated_Rows checks which changes are one row.
func TestRepeated_Rows(t *testing.T) {
	const (
		failed = orchestrator.OutcomeFailed
		done   = orchestrator.OutcomeDone
	)
	tests := map[string]struct {
		changes string // the oldest first: the task, the worker and a mark for done
		rows    []string
	}{
		"none":                    {"", nil},
		"different tasks":         {"a1 b1 a2", []string{"a2", "b1", "a1"}},
		"fails again":             {"a1 a1 a1", []string{"a1 x3"}},
		"two in turn":             {"a1 b1 a1 b1 a1", []string{"a1 x3", "b1 x2"}},
		"on two workers":          {"a1 a2 a1 a2", []string{"a2 x2", "a1 x2"}},
		"success in between":      {"a1 a2! a1", []string{"a1", "a2!", "a1"}},
		"succeeds again":          {"a1! a1! a1!", []string{"a1! x3"}},
		"succeeds, with failures": {"a1! a1 a1!", []string{"a1!", "a1", "a1!"}},
		"beyond the limit":        {"a1 b1 c1 d1 a1 b1 c1 d1", []string{"d1 x2", "c1 x2", "b1 x2", "a1 x2"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var file strings.Builder
			file.WriteString(header)
			changes := strings.Fields(test.changes)
			for i, c := range changes {
				outcome := failed
				if strings.HasSuffix(c, "!") {
					outcome = done
				}
				fmt.Fprintf(&file, `{"term":{"stats":{"term":{"epoch":1,"number":%d}},"changes":[`+
					`{"op":"start","reason":"missing","task":%q,"to":%q,"outcome":%q}]}}`+"\n", i+1, c[:1], c[1:2], outcome)
			}
			r, err := history.Open(write(t, map[string]string{"log": file.String()}))
			require.NoError(t, err)
			for _, limit := range []int{1, 2, 1000} { // page by page
				var rows []string
				var after history.Position
				for {
					page, matching := r.View().Repeated(history.Filter{}, after, limit)
					require.Equal(t, len(changes), matching)
					for _, row := range page {
						text := row.Change.Task + row.Change.To
						if row.Change.Outcome == done {
							text += "!"
						}
						if row.Times > 1 {
							text += fmt.Sprint(" x", row.Times)
						}
						rows = append(rows, text)
						after = row.At
					}
					if len(page) < limit {
						break
					}
				}
				require.Equal(t, test.rows, rows, "limit %d", limit)
			}
		})
	}
}

// TestFilter checks each field of a filter.
func TestFilter(t *testing.T) {
	inBubble(t, inMemory, []string{"w1", "w2"}, []string{"a", "b", ""}, func(t *testing.T, f *fleet) {
		f.terms(1)
		second := time.Now().Add(1) // the first term took no time
		require.NoError(t, f.DrainWorker("w2"))
		f.terms(1)
		count := func(filter history.Filter) (n int) {
			for range f.ring.View().Changes(filter) {
				n++
			}
			return n
		}
		moved := count(history.Filter{Reason: orchestrator.ReasonDrain})
		require.NotZero(t, moved)
		require.Equal(t, 3+moved, count(history.Filter{}))
		require.Equal(t, moved, count(history.Filter{Since: second}))
		require.Equal(t, 3, count(history.Filter{Reason: orchestrator.ReasonMissing}))
		require.Equal(t, 3+moved, count(history.Filter{Outcome: orchestrator.OutcomeDone}))
		require.Zero(t, count(history.Filter{Outcome: orchestrator.OutcomeFailed}))
		require.Equal(t, 2*moved, count(history.Filter{Worker: new("w2")}))
		require.Equal(t, 3, count(history.Filter{Worker: new("w1")}))
		require.Zero(t, count(history.Filter{Worker: new("")}), "a start has no From")
		require.Equal(t, 3+moved, count(history.Filter{Task: new("a")})+count(history.Filter{Task: new("b")})+count(history.Filter{Task: new(`""`)}), "the third is empty")
		require.NotZero(t, count(history.Filter{Task: new(`""`)}))
		for range f.ring.View().Changes(history.Filter{}) { // an iteration may end early
			break
		}
	})
}
