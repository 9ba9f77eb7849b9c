package replica

// What a leader writes.

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// leader returns what a leader of epoch 200 knows of members 1 to 3.
func leader(orders []Order, reports map[uint64]Report, tasks ...Task) *dispatch {
	all := map[uint64]Report{1: {}, 2: {}, 3: {}}
	maps.Copy(all, reports)
	reports = all
	v := View{Server: "s", Full: true, Listed: true, Epoch: 200, Orders: orders, Reports: reports, Tasks: tasks, Members: []Member{other(1), other(2), other(3)}}
	return newDispatch(&v, false, at(0))
}

// report observes a report of member 1.
func report(d *dispatch, r Report) {
	d.observe(&View{Reports: map[uint64]Report{1: r}}, at(0))
}

// write returns the orders of the next batch, which is stored.
func write(d *dispatch) []string {
	b := d.next(nil, true)
	if b == nil {
		return nil
	}
	d.stored(at(0))
	var texts []string
	for _, o := range b.Orders {
		verb := "run"
		if o.Stop {
			verb = "stop"
		}
		texts = append(texts, fmt.Sprintf("%s %s on %d", verb, o.Task, o.Member))
	}
	for _, o := range b.Dropped {
		texts = append(texts, fmt.Sprintf("drop %s on %d", o.Task, o.Member))
	}
	return texts
}

func TestO3_AnOrderWaitsUntilTheTaskRunsNowhereElse(t *testing.T) {
	d := leader(nil, nil)
	d.order(d.member(1), "t", true)
	require.Equal(t, []string{"run t on 1"}, write(d))
	d.order(d.member(2), "t", true)
	require.Nil(t, write(d), "what was sent counts, read or not")
	report(d, Report{Applied: 201})
	require.Nil(t, write(d))
	d.order(d.member(1), "t", false)
	require.Equal(t, []string{"stop t on 1"}, write(d))
	require.Nil(t, write(d), "the order to stop was not read")
	report(d, Report{Applied: 202, Also: []string{"t"}})
	require.Nil(t, write(d), "it still stops")
	report(d, Report{Applied: 202})
	require.ElementsMatch(t, []string{"run t on 2", "drop t on 1"}, write(d))
	require.Nil(t, write(d), "what the order says already is not written again")
}

func TestO3_Wanted(t *testing.T) {
	for name, test := range map[string]struct {
		task Task
		want int
	}{
		"one":                         {Task{Name: "t"}, 1},
		"two":                         {Task{Name: "t", Instances: 2}, 2},
		"not wanted":                  {Task{Name: "t", Instances: -1}, 1},
		"one, start then stop":        {Task{Name: "t", Handoff: orchestrator.StartThenStop}, 2},
		"not in the list in force":    {Task{Name: "u"}, 1},
		"a plan of a moment before 3": {Task{Name: "t", Instances: 3}, 3},
	} {
		d := leader(nil, nil, test.task)
		for id := uint64(1); id <= 3; id++ {
			d.order(d.member(id), "t", true)
		}
		require.Len(t, write(d), test.want, name)
	}
}

func TestO3_GoneMembersRunNothing(t *testing.T) {
	d := leader([]Order{{Member: 1, Task: "t", Version: 90}}, map[uint64]Report{1: {Applied: 95}})
	d.order(d.member(2), "t", true)
	require.Nil(t, write(d))
	d.observe(&View{Gone: []uint64{1}}, at(0))
	require.Equal(t, []string{"run t on 2", "drop t on 1"}, write(d))
}

func TestO9_AMemberWithoutAReportMayRunAnything(t *testing.T) {
	for name, report := range map[string]map[uint64]Report{"none": {}, "unreadable": {2: {Applied: MaxSeen}}} {
		v := View{
			Server: "s", Full: true, Listed: true, Epoch: 200, Members: []Member{other(1), other(2)}, Reports: report,
			Orders: []Order{{Member: 1, Task: "a", Version: 90}},
		}
		v.Reports[1] = Report{Applied: 95}
		d := newDispatch(&v, false, at(0))
		d.order(d.member(1), "b", true)
		require.Nil(t, write(d), name)
		d.observe(&View{Reports: map[uint64]Report{2: {Also: []string{"c"}}}}, at(0))
		require.ElementsMatch(t, []string{"run b on 1", "run c on 2"}, write(d), name)
	}
}

func TestO6_TheFirstBatch(t *testing.T) {
	d := leader([]Order{
		{Member: 1, Task: "read", Version: 90},
		{Member: 1, Task: "refused", Version: 90},
		{Member: 1, Task: "unread", Version: 96},
		{Member: 1, Task: "twice", Version: 96},
		{Member: 2, Task: "twice", Version: 90},
		{Member: 2, Task: "stop", Version: 99, Stop: true},
	}, map[uint64]Report{1: {Applied: 95, Refused: map[string]string{"refused": "no"}}, 2: {Applied: 95}})
	require.ElementsMatch(t, []string{"run unread on 1", "stop twice on 1", "stop refused on 1"}, write(d))
	require.True(t, d.member(2).mayRun("twice"))
	require.True(t, d.member(2).mayRun("stop"), "not read yet")
}

func TestO7_O8_ReportsAndOrders(t *testing.T) {
	d := leader([]Order{{Member: 1, Task: "lost", Version: 90}, {Member: 1, Task: "no", Version: 90}, {Member: 1, Task: "s", Version: 90, Stop: true}},
		map[uint64]Report{1: {Applied: 95, Also: []string{"lost", "found", "s"}}})
	require.ElementsMatch(t, []string{"run lost on 1", "run found on 1"}, write(d), "all in Also gets an order")
	e := d.order(d.member(1), "s", false)
	require.NotNil(t, e)
	require.Equal(t, []string{"stop s on 1"}, write(d), "a later Remove writes it again")
	report(d, Report{Applied: 202, Refused: map[string]string{"no": "x"}})
	require.ElementsMatch(t, []string{"stop no on 1", "drop s on 1"}, write(d), "a refused order becomes one to stop")
	report(d, Report{Applied: 203})
	require.Equal(t, []string{"drop no on 1"}, write(d))
}

func TestO8_WhatIsMissingIsWrittenAgain(t *testing.T) {
	d := leader([]Order{{Member: 1, Task: "a", Version: 90}, {Member: 1, Task: "b", Version: 90}}, map[uint64]Report{1: {Applied: 95}}, Task{Name: "a"}, Task{Name: "b"})
	require.Nil(t, write(d))
	d.observe(&View{Full: true, Reports: map[uint64]Report{1: {Applied: 95}}, Orders: []Order{{Member: 1, Task: "b", Version: 90}}, Tasks: []Task{{Name: "b"}}}, at(0))
	b := d.next(nil, true)
	require.Equal(t, []Task{{Name: "a"}}, b.Tasks)
	require.Equal(t, []Order{{Member: 1, Task: "a", Version: 201}}, b.Orders)
}

func TestO8_ATaskKeepsItsRunInANewTable(t *testing.T) {
	v := View{Server: "s", Full: true, Epoch: 200, Reports: map[uint64]Report{1: {Also: []string{"a", "gone"}}}, Members: []Member{other(1)}}
	d := newDispatch(&v, false, at(0))
	require.Nil(t, d.next(nil, true), "their Inputs are not known")
	d.setGoal(map[string]Task{"a": {Name: "a", Input: 7}})
	b := d.next(nil, true)
	require.Equal(t, []Order{
		{Member: 1, Task: "a", Version: 201, Input: 7},
		{Member: 1, Task: "gone", Version: 201},
	}, b.Orders, "a term may stop the other one")
}

func TestA9_AppliedAboveTheLastBatch(t *testing.T) {
	d := leader(nil, nil)
	d.order(d.member(1), "t", true)
	require.Len(t, write(d), 1)
	report(d, Report{Applied: MaxSeen})
	require.Zero(t, d.above, "that one cannot be read")
	require.True(t, d.member(1).unreadable)
	report(d, Report{Applied: 202, Also: []string{"x"}})
	require.EqualValues(t, 202, d.above)
	require.Nil(t, d.next(nil, true))
	require.Nil(t, d.member(1).orders["x"], "nothing of it is believed")
}

func TestA10_MembersThatDoNotReadTheirOrders(t *testing.T) {
	d := leader([]Order{{Member: 1, Task: "t", Version: 96, Stop: true}}, map[uint64]Report{1: {Applied: 95}})
	require.Equal(t, at(0), d.member(1).waiting)
	report(d, Report{Applied: 96})
	require.Zero(t, d.member(1).waiting)
}

func TestB5_BatchesThatFail(t *testing.T) {
	d := leader(nil, nil)
	for _, task := range []string{"a", "b", "bad", "c"} {
		d.order(d.member(1), task, true)
	}
	first := d.next(nil, true)
	require.Same(t, first, d.next(nil, true), "without an answer the same is sent again")
	refused, left := 0, ""
	for range 20 {
		b := d.next(nil, true)
		if b == nil {
			break
		}
		bad := false
		for _, o := range b.Orders {
			bad = bad || o.Task == "bad"
		}
		if bad {
			refused++
			left += d.refuse(errors.New("no"))
			continue
		}
		d.stored(at(0))
	}
	require.Equal(t, `order for task "bad"`, left)
	require.LessOrEqual(t, refused, 3)
	require.Nil(t, d.next(nil, true))
	m := d.member(1)
	require.True(t, m.mayRun("a") && m.mayRun("b") && m.mayRun("c"))
	require.False(t, m.mayRun("bad"))
}

func TestB5_BatchesAreBounded(t *testing.T) {
	d := leader(nil, nil)
	for i := range 2500 {
		d.order(d.member(uint64(1+i%3)), fmt.Sprint("t", i), true)
	}
	var sizes []int
	for b := d.next(nil, true); b != nil; b = d.next(nil, true) {
		sizes = append(sizes, b.Len())
		d.stored(at(0))
	}
	require.Equal(t, []int{1000, 1000, 500}, sizes)
}
