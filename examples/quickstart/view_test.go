package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

type (
	change      = orchestrator.Change[member, endpoint]
	workerState = orchestrator.WorkerState[member, endpoint]
)

// frames are the terms in which w2 becomes silent and lost.
func frames() []frame {
	w1, w2 := member{Name: "w1"}, member{Name: "w2"}
	a, b := endpoint{Name: "a"}, endpoint{Name: "b"}
	missing := orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonMissing}
	lost := orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonLost}
	move := orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonRebalance}
	done := orchestrator.OutcomeDone
	fleet := func(state orchestrator.State, on1, on2 []endpoint) []workerState {
		return []workerState{{Name: w1, State: orchestrator.Answering, Tasks: on1}, {Name: w2, State: state, Tasks: on2}}
	}
	return []frame{{
		plan: orchestrator.Plan[member, endpoint]{Changes: []change{
			{Kind: missing, Task: b, To: w2, Outcome: done},
			{Kind: missing, Task: a, To: w2, Outcome: done},
			{Kind: move, Task: a, From: w2, To: w1, Outcome: orchestrator.OutcomeReturned, Err: errors.New("no room")},
		}},
		actual: fleet(orchestrator.Answering, nil, []endpoint{a, b}),
	}, {
		actual: fleet(orchestrator.Answering, nil, []endpoint{a, b}),
	}, {
		actual: fleet(orchestrator.Silent, nil, []endpoint{a, b}),
	}, {
		plan: orchestrator.Plan[member, endpoint]{Changes: []change{
			{Kind: lost, Task: a, To: w1, Outcome: done},
			{Kind: lost, Task: b, To: w1, Outcome: done},
		}},
		actual: fleet(orchestrator.Lost, []endpoint{a, b}, []endpoint{a, b}),
	}}
}

func TestPlainReadsLikeAStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		v := &plain{out: &out, began: time.Now()}
		v.chapter("1/1  w2 is killed")
		for _, f := range frames() {
			v.term(f)
			time.Sleep(1500 * time.Millisecond)
		}
		v.close()
		require.Equal(t, `
   0.0s  1/1  w2 is killed
   0.0s  move  w2 → w1 (rebalance), returned: no room: a
   0.0s  start on w2 (missing): a b
   0.0s  load is now w1: 0  w2: 2
   3.0s  w2 is silent: it may still run its 2 tasks, so nothing moves yet
   3.0s  load is now w1: 0  w2: 2 held
   4.5s  w2 was silent for 2s and is lost: what it ran is started elsewhere
   4.5s  start on w1 (lost): a b
   4.5s  load is now w1: 2  w2: lost
`, out.String())
	})
}

func TestScreenShowsATableAndGivesTheTerminalBack(t *testing.T) {
	var out strings.Builder
	v := newScreen(&out, time.Now())
	v.chapter("1/1  w2 is killed")
	for _, f := range frames() {
		v.term(f)
	}
	v.close()

	require.True(t, strings.HasPrefix(out.String(), enterScreen))
	require.True(t, strings.HasSuffix(out.String(), leaveScreen))
	last := out.String()[strings.LastIndex(out.String(), home):]
	require.Contains(t, last, "1/1  w2 is killed")
	require.Contains(t, last, " w1      "+paint(green, "answering")+"     2  a b")
	require.Contains(t, last, " w2      "+paint(red, "lost     ")+"     0  ")
	require.Contains(t, last, "start on w1 (lost): a b")
}

func TestScreenFits80Columns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		v := newScreen(&out, time.Now())
		v.say("start on w4 (missing): " + storyNames)
		v.say("move  w1 → w4 (drain): api")
		v.term(frame{actual: []workerState{{Name: member{Name: "w1"}, State: orchestrator.Answering}}})
		last := out.String()[strings.LastIndex(out.String(), home):]
		last = regexp.MustCompile(`\x1b\[[?\d;]*[a-zA-Z]`).ReplaceAllString(last, "")
		for line := range strings.SplitSeq(last, "\r\n") {
			require.LessOrEqual(t, utf8.RuneCountInString(line), 80, line)
		}
		require.Contains(t, last, `
   0.0s  start on w4 (missing): api auth blog cart cdn chat docs faq feed geo`+"\r"+`
           home jobs login mail maps news pay push search shop stock tax video`+"\r"+`
           wiki`+"\r"+`
   0.0s  move  w1 → w4 (drain): api`)
	})
}

func TestWrap(t *testing.T) {
	words := strings.Fields("one two three four five")
	require.Equal(t, []string{""}, wrap(nil, 9, 2))
	require.Equal(t, []string{"one two", "three", "four five"}, wrap(words, 9, 5))
	require.Equal(t, []string{"one two", "three +2"}, wrap(words, 9, 2))
	require.Equal(t, []string{"one", "two", "three", "four", "five"}, wrap(words, 1, 5), "a word that is too long gets its own line")
}
