package replica

// What a member does with its orders.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/worker"
)

const whyOld = "the order was not above Applied when it was read"

// member returns duties that have read and accepted orders of epoch 100.
func member(orders ...Order) *duties {
	d := newDuties(false)
	show(d, nil, orders...)
	return d
}

// show gives d a full View with orders for member 1, in a confirmed table of epoch 100.
func show(d *duties, have present, orders ...Order) {
	v := View{Server: "s", Full: true}
	for _, o := range orders {
		o.Member = 1
		v.Orders = append(v.Orders, o)
		if !o.Stop {
			v.OrderCount++
		}
	}
	d.read(&v, 1)
	d.accept(have, 100, true)
}

// has returns what a worker has, by states.
func has(states map[string]worker.State) present {
	p := make(present)
	for task, s := range states {
		p[task] = worker.TaskStatus[string]{Task: task, State: s, Version: 1 << 60, Token: 1 << 60}
	}
	return p
}

func running(tasks ...string) present {
	states := make(map[string]worker.State)
	for _, task := range tasks {
		states[task] = worker.Running
	}
	return has(states)
}

func toRun(task string, version uint64) Order { return Order{Task: task, Version: version} }
func toStop(task string) Order                { return Order{Task: task, Version: 102, Stop: true} }

// starts returns the tasks that d starts.
func starts(d *duties, have present) (tasks []string) {
	add, _, _ := d.steps(have)
	for _, s := range add {
		tasks = append(tasks, s.task)
	}
	return tasks
}

// A worker refuses a task that has asked to run elsewhere while its content has the same
// version: while its order has the same Input and Generation.
func TestReschedule_KeepsTheVersionOfTheInput(t *testing.T) {
	d := member(Order{Task: "a", Version: 101, Input: 7})
	for i, c := range []struct {
		o       Order
		version uint64
	}{{Order{Version: 110, Input: 7}, 101}, {Order{Version: 120, Input: 8}, 120}, {Order{Version: 130, Input: 8, Generation: 1}, 130}} {
		c.o.Task = "a"
		show(d, nil, toStop("a"))
		show(d, nil, c.o)
		s := d.accepted["a"]
		require.Equal(t, start{"a", c.o.Version, c.version, c.o.Input, c.o.Generation}, s, i)
		if i == 1 {
			d.fail(s, "elsewhere")
		}
	}
}

// While it stops its order to run stands for it, and its state is shown. Once it has stopped it
// is refused.
func TestReschedule_IsReported(t *testing.T) {
	d := member(toRun("a", 101))
	r := d.report(has(map[string]worker.State{"a": worker.Stopping}))
	require.Empty(t, r.Also)
	require.Empty(t, r.Refused)
	require.Equal(t, []TaskState{{Task: "a", State: "stopping"}}, r.States)
	require.Equal(t, []string{"a"}, starts(d, nil), "it is offered to the worker again")
	require.Equal(t, Report{Applied: 101, Refused: map[string]string{}}, d.report(nil))
	d.fail(d.accepted["a"], "it has asked")
	require.Equal(t, map[string]string{"a": "it has asked"}, d.report(nil).Refused)
}

func TestO1_StartsOnlyFromNewOrders(t *testing.T) {
	d := member(toRun("a", 101), toRun("b", 103))
	require.Equal(t, []string{"a", "b"}, starts(d, nil))
	require.Equal(t, Report{Applied: 103, Refused: map[string]string{}}, d.report(nil))

	show(d, running("a", "b"), toRun("a", 101), toRun("b", 103), toRun("late", 102))
	require.Empty(t, starts(d, running("a", "b")))
	require.Equal(t, map[string]string{"late": whyOld}, d.report(running("a", "b")).Refused)

	show(d, running("a", "b"), toRun("a", 102), toRun("b", 50))
	r := d.report(running("a", "b"))
	require.Equal(t, Report{Applied: 103, Refused: map[string]string{}}, r, "an order for a running task is acted on, whatever its version")

	d.read(&View{Server: "t", Full: true, Orders: []Order{{Member: 1, Task: "old", Version: 90}, {Member: 1, Task: "new", Version: 104}}, OrderCount: 2}, 1)
	d.accept(running("a", "b"), 100, false)
	r = d.report(running("a", "b"))
	require.Equal(t, []string{"a", "b"}, r.Also, "their orders are gone")
	require.Equal(t, map[string]string{"old": whyOld}, r.Refused, "at once, also where nothing is confirmed")
	require.EqualValues(t, 103, r.Applied, "it starts nothing there")
	require.Empty(t, starts(d, running("a", "b")))
}

func TestO1_OrdersOutOfRange(t *testing.T) {
	d := member(toRun("a", 101), Order{Task: "b", Version: MaxSeen}, Order{Task: "c", Version: MaxSeen + 5, Stop: true})
	require.Equal(t, []string{"a"}, starts(d, nil))
	require.EqualValues(t, 101, d.applied)
}

func TestO1_InputAndGeneration(t *testing.T) {
	d := member(toRun("a", 101))
	have := present{"a": {Task: "a", State: worker.Running, Version: 101, Token: 101}}
	show(d, have, toRun("a", 105))
	_, update, _ := d.steps(have)
	require.Empty(t, update, "a later order changes neither run nor token")
	show(d, have, Order{Task: "a", Version: 106, Input: 7})
	_, update, _ = d.steps(have)
	require.Equal(t, []start{{task: "a", token: 101, version: 106, input: 7}}, update)
	show(d, have, Order{Task: "a", Version: 107, Input: 7, Generation: 1})
	_, update, _ = d.steps(have)
	require.Equal(t, []start{{task: "a", token: 107, version: 107, input: 7, generation: 1}}, update)
}

func TestO2_TheWholeOrderIsActedOnAgain(t *testing.T) {
	d := member(toRun("a", 101))
	stopping := has(map[string]worker.State{"a": worker.Stopping})
	show(d, running("a"), toStop("a"))
	_, _, remove := d.steps(running("a"))
	require.Equal(t, []string{"a"}, remove)
	show(d, stopping, toRun("a", 103))
	require.Empty(t, starts(d, stopping), "an earlier run ends first")
	require.Equal(t, []string{"a"}, starts(d, nil))
	require.EqualValues(t, 103, d.accepted["a"].token)
}

func TestO2_Reports(t *testing.T) {
	d := member(toRun("a", 101), toRun("b", 101), toRun("c", 101))
	have := has(map[string]worker.State{"a": worker.Starting, "b": worker.Running, "x": worker.Running, "s": worker.Stopping})
	show(d, have, toRun("a", 101), toRun("b", 101), toRun("c", 101), toStop("s"))
	r := d.report(have)
	require.Equal(t, []string{"s", "x"}, r.Also)
	require.Equal(t, []string{"a"}, r.Starting)
	d.fail(d.accepted["c"], strings.Repeat("w", 300))
	require.Equal(t, map[string]string{"c": strings.Repeat("w", 200)}, d.report(have).Refused)
	show(d, have, toRun("c", 103))
	require.Contains(t, starts(d, have), "c", "a new order is tried again")

	var many []Order
	states := make(map[string]worker.State)
	for i := range 130 {
		states[fmt.Sprintf("t%03d", i)] = worker.Backoff
		many = append(many, toRun(fmt.Sprintf("r%03d", i), 1))
	}
	d = member(toRun("a", 150))
	show(d, has(states), many...)
	r = d.report(has(states))
	require.Len(t, r.States, 100)
	require.Equal(t, 30, r.More)
	require.Len(t, r.Refused, 130)
	require.Equal(t, whyOld, r.Refused["r099"])
	require.Empty(t, r.Refused["r100"])
}

func TestO6_OrdersOfAnotherEpochAreLeftUnread(t *testing.T) {
	d := member(toRun("a", 101))
	before := []Order{toRun("a", 101), toRun("b", 102)}
	for i := range before {
		before[i].Member = 1
	}
	d.read(&View{Server: "s", Full: true, Orders: before, OrderCount: 2}, 1)
	d.accept(running("a"), 1<<33, true)
	require.Equal(t, Report{Applied: 101, Refused: map[string]string{}}, d.report(running("a")), "neither accepted nor refused")
	require.Empty(t, starts(d, running("a")))

	d.read(&View{Server: "s", Orders: []Order{{Member: 1, Task: "c", Version: 1<<33 + 1, Stop: true}}, OrderCount: 2}, 1)
	d.accept(running("a"), 1<<33, true)
	r := d.report(running("a"))
	require.EqualValues(t, 1<<33+1, r.Applied, "orders to stop count in every epoch")
	require.Equal(t, map[string]string{"b": whyOld}, r.Refused)

	p := newDuties(true)
	p.read(&View{Server: "s", Full: true, Orders: []Order{{Member: 1, Task: "a", Version: 101, Epoch: 99}}, OrderCount: 1}, 1)
	p.accept(nil, 100, true)
	require.Empty(t, starts(p, nil), "piecewise: of exactly the table's epoch (O5)")
}

func TestO7_AStopIsForgottenOnceItWasPublished(t *testing.T) {
	d := member(toRun("a", 101))
	show(d, running("a"), toStop("a"))
	r := d.report(running("a"))
	d.forget(&r, running("a"))
	require.Contains(t, d.orders, "a")
	r = d.report(nil)
	d.forget(&r, nil)
	require.Empty(t, d.orders)
	require.Equal(t, Report{Applied: 102, Refused: map[string]string{}}, d.report(nil))
}

func TestO7_OrdersAreCounted(t *testing.T) {
	d := member(toRun("a", 101))
	require.False(t, d.incomplete)
	d.read(&View{Server: "s", OrderCount: 2}, 1)
	require.True(t, d.incomplete)
}

func TestA11_ActingIsHandingOver(t *testing.T) {
	d := member(toRun("a", 101), toRun("b", 101))
	behind := func(have present) bool {
		add, _, remove := d.steps(have)
		return len(add)+len(remove) > 0
	}
	require.True(t, behind(nil))
	require.True(t, behind(running("a")))
	waiting := has(map[string]worker.State{"a": worker.Stopping, "b": worker.Queued})
	require.False(t, behind(waiting), "an earlier run ends first, a slot is awaited")
	show(d, running("a", "b"), toStop("a"))
	require.True(t, behind(running("a", "b")))
	require.False(t, behind(waiting))
}

func TestMark(t *testing.T) {
	var since time.Time
	mark(&since, true, at(1))
	mark(&since, true, at(2))
	require.Equal(t, at(1), since)
	mark(&since, false, at(3))
	require.Zero(t, since)
}

// The orders of another order record are not those of the former one.
func TestO9_AnotherOrderRecord(t *testing.T) {
	d := newDuties(true)
	order := Order{Member: 1, Task: "a", Version: 101, Epoch: 100}
	d.read(&View{Server: "s", Reading: "r", Full: true, Orders: []Order{order}, OrderCount: 1}, 1)
	d.accept(nil, 100, true)
	d.read(&View{Server: "s", Reading: "q", OrderCount: 1}, 1)
	require.Equal(t, []string{"a"}, d.report(running("a")).Also, "its order is gone")
	require.True(t, d.incomplete)
}
