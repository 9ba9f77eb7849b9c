package main

// Concurrent operations on a real Redis, compared with a model at the end. Each
// script returns the millisecond at which it ran by the clock of Redis. That orders
// the operations of all goroutines, except those within the same millisecond.

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/recruit"
)

var lasts = flag.Duration("recruit.for", time.Second, "how long the test against a model takes")

const (
	goroutines  = 100
	modelFields = 300
)

// event is a write or a read of a field.
type event struct {
	field string
	at    stamp
	value string // "": the read found nothing
	read  bool
}

// state is a possible state of a field: a value and its deadline. The zero state
// means that the field is absent.
type state struct {
	value    string
	deadline int64
}

// hand is one of the goroutines. Only this goroutine finishes and reopens its items,
// so it knows their states.
type hand struct {
	cache     *cache
	queue     *queue
	dying     *cache // its connections are cut
	cut       *cutter
	recruiter *recruit.Recruiter
	random    *rand.Rand

	events []event
	items  map[string]string
	ids    []string
	values int
	number int
}

func TestS6_AHundredReadWriteAndCollect(t *testing.T) {
	dial := startRedis(t)
	rdb := oneShot(t, dial)
	c, q := newCache(rdb, "cache"), newQueue(rdb, "queue")
	r, err := recruit.New(recruit.WithBudget(5*time.Second), recruit.WithLimit(0))
	require.NoError(t, err)
	require.NoError(t, r.Install("expire", 0.2, recruit.JobFunc(func(ctx context.Context) error {
		_, err := c.collect(ctx, slice)
		return err
	})))
	require.NoError(t, r.Install("archive", 0.2, recruit.JobFunc(func(ctx context.Context) error { return q.archive(ctx, slice) })))

	ctx, cancel := context.WithTimeout(t.Context(), *lasts)
	defer cancel()
	hands := make([]*hand, goroutines)
	var wg sync.WaitGroup
	for i := range hands {
		cut := &cutter{dial: dial}
		h := &hand{
			cache: c, queue: q, dying: newCache(oneShot(t, cut.connect), "cache"), cut: cut, recruiter: r,
			random: rand.New(rand.NewPCG(1, uint64(i))), items: make(map[string]string), number: i,
		}
		hands[i] = h
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := h.step(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	jobs := r.Jobs()
	require.NoError(t, r.Close(t.Context()))
	for _, j := range jobs {
		require.NotZero(t, j.Recruited, j.Name)
		require.Zero(t, j.Failed, j.Name)
	}

	events, items := gather(hands)
	live, absent := 0, 0
	for field, of := range events {
		for i, e := range of {
			if !e.read {
				continue
			}
			may := possible(of, e.at.now)
			require.Contains(t, may, e.found(), "field %s at %d, read %d of its events", field, e.at.now, i)
			if e.value == "" {
				absent++
			} else {
				live++
			}
		}
	}
	require.NotZero(t, live)
	require.NotZero(t, absent)
	checkCache(t, c, events)
	checkQueue(t, c, q, items)
	t.Logf("%d reads found a value, %d none; %d fields, %d items; %s: %d, %s: %d recruits",
		live, absent, len(events), len(items), jobs[0].Name, jobs[0].Recruited, jobs[1].Name, jobs[1].Recruited)
}

// step performs one operation. It returns only unexpected errors.
func (h *hand) step(ctx context.Context) error {
	h.recruiter.Enlist(ctx)
	switch chosen := h.random.IntN(100); {
	case chosen < 40:
		return h.readField(ctx)
	case chosen < 70:
		return h.writeField(ctx)
	case chosen < 75: // a collector that is cut off
		h.cut.left.Store(h.random.Int64N(400))
		_, _ = h.dying.collect(ctx, slice)
		return nil
	case chosen < 76:
		if h.random.IntN(20) > 0 { // seldom, because the check is slow and blocks Redis
			return nil
		}
		if n, err := wrong(ctx, h.cache, h.queue); err != nil || n != 0 {
			return fmt.Errorf("%d things are wrong: %w", n, err)
		}
		return nil
	case chosen < 79:
		id, err := h.queue.add(ctx)
		h.items[id] = open
		h.ids = append(h.ids, id)
		return err
	case len(h.ids) == 0:
		return nil
	default:
		return h.changeItem(ctx, h.ids[h.random.IntN(len(h.ids))], chosen < 95)
	}
}

func (h *hand) readField(ctx context.Context) error {
	e := event{field: strconv.Itoa(h.random.IntN(modelFields)), read: true}
	value, at, err := h.cache.read(ctx, e.field)
	if value != nil {
		e.value = *value
	}
	e.at = at
	h.events = append(h.events, e)
	return err
}

func (h *hand) writeField(ctx context.Context) error {
	h.values++
	e := event{field: strconv.Itoa(h.random.IntN(modelFields)), value: fmt.Sprintf("%d.%d", h.number, h.values)}
	at, err := h.cache.write(ctx, e.field, e.value, time.Duration(1+h.random.IntN(300))*time.Millisecond)
	e.at = at
	h.events = append(h.events, e)
	return err
}

func (h *hand) changeItem(ctx context.Context, id string, finish bool) error {
	change, becomes := h.queue.reopen, open
	if finish {
		change, becomes = h.queue.finish, finished
	}
	found, err := change(ctx, id)
	if err == nil && !found {
		return fmt.Errorf("item %s is gone", id)
	}
	h.items[id] = becomes
	return err
}

// found returns the state that a read has seen.
func (e event) found() state {
	if e.value == "" {
		return state{}
	}
	return state{e.value, e.at.deadline}
}

// gather merges the records of all goroutines: the events of each field in order of
// time, and the state of each item.
func gather(hands []*hand) (map[string][]event, map[string]string) {
	events, items := make(map[string][]event), make(map[string]string)
	for _, h := range hands {
		for _, e := range h.events {
			events[e.field] = append(events[e.field], e)
		}
		maps.Copy(items, h.items)
	}
	for _, of := range events {
		slices.SortStableFunc(of, func(a, b event) int { return int(a.at.now - b.at.now) })
	}
	return events, items
}

// possible returns the possible states of a field in the millisecond at. These are
// the values written in that millisecond, and those written in the last earlier
// millisecond with a write. The zero state is possible if one of them has expired
// or there is no earlier write.
func possible(events []event, at int64) []state {
	var before, during []state
	var last int64
	for _, e := range events {
		written := state{e.value, e.at.deadline}
		switch {
		case e.read:
		case e.at.now > at:
			return settle(before, during, at)
		case e.at.now == at:
			during = append(during, written)
		case e.at.now > last:
			last, before = e.at.now, []state{written}
		default:
			before = append(before, written)
		}
	}
	return settle(before, during, at)
}

func settle(before, during []state, at int64) []state {
	if len(before) == 0 {
		before = []state{{}}
	}
	may := slices.Concat(before, during)
	for i := range may {
		if may[i].deadline <= at {
			may[i] = state{}
		}
	}
	return may
}

// checkCache compares the content of Redis with the model twice: immediately, and
// when everything has expired and been collected.
func checkCache(t *testing.T, c *cache, events map[string][]event) {
	t.Helper()
	ctx := t.Context()
	answers, err := transact(ctx, c.rdb, command{"TIME"}, command{"HGETALL", c.keys[0]}, command{"ZRANGE", c.keys[1], 0, -1, "WITHSCORES"})
	require.NoError(t, err)
	at := millis(t, answers[0])
	values, err := redis.StringMap(answers[1], nil)
	require.NoError(t, err)
	deadlines, err := redis.Int64Map(answers[2], nil)
	require.NoError(t, err)
	until := at
	there := make(map[string]state)
	for field, deadline := range deadlines {
		there[field] = state{values[field], deadline}
		until = max(until, deadline)
	}
	require.Len(t, values, len(there), "values and deadlines have different fields")
	for field, of := range events {
		got := there[field]
		if got.deadline <= at {
			got = state{} // expired but not collected yet
		}
		require.Contains(t, possible(of, at), got, "field %s at the end", field)
	}

	require.Eventually(t, func() bool {
		_, err := c.collect(ctx, 100)
		return err == nil && ask(t, redis.Int, c.rdb, "EXISTS", c.keys[0], c.keys[1]) == 0
	}, 20*time.Second, time.Millisecond, "something is never collected")
	now, err := do(ctx, c.rdb, "TIME")
	require.NoError(t, err)
	require.GreaterOrEqual(t, millis(t, now), until, "collected before its time")
}

// millis returns the milliseconds of an answer to TIME.
func millis(t *testing.T, answer any) int64 {
	t.Helper()
	clock, err := redis.Int64s(answer, nil) // seconds, microseconds
	require.NoError(t, err)
	require.Len(t, clock, 2)
	return clock[0]*1000 + clock[1]/1000
}

// checkQueue checks that the sets agree with the model after enough recruits.
func checkQueue(t *testing.T, c *cache, q *queue, items map[string]string) {
	t.Helper()
	ctx := t.Context()
	done := 0
	for id, state := range items {
		require.Equal(t, state, ask(t, redis.String, q.rdb, "GET", q.item+id), "item %s", id)
		if state == finished {
			done++
		}
	}
	require.Eventually(t, func() bool {
		return q.archive(ctx, 1000) == nil && ask(t, redis.Int, q.rdb, "SCARD", q.archived) == done
	}, 20*time.Second, time.Millisecond, "something finished is never archived")
	require.Equal(t, len(items)-done, ask(t, redis.Int, q.rdb, "SCARD", q.pending))
	n, err := wrong(ctx, c, q)
	require.NoError(t, err)
	require.Zero(t, n)
}
