package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// randomTasks are tasks that behave at random, and record their runs.
type randomTasks struct {
	runs    map[string]*atomic.Int32
	running atomic.Int32
	most    atomic.Int32 // the most slots used at the same time
	twice   atomic.Bool  // a task ran twice at the same time
}

func (w *randomTasks) run(ctx context.Context, task string) error {
	if w.runs[task].Add(1) > 1 {
		w.twice.Store(true)
	}
	n := w.running.Add(1)
	for {
		if m := w.most.Load(); n <= m || w.most.CompareAndSwap(m, n) {
			break
		}
	}
	defer func() {
		w.running.Add(-1)
		w.runs[task].Add(-1)
	}()
	select {
	case <-ctx.Done():
		<-time.After(time.Duration(rand.IntN(4)) * time.Second)
		return nil
	case <-time.After(time.Duration(rand.IntN(20)) * time.Second):
	}
	switch rand.IntN(4) {
	case 0:
		panic("at random")
	case 1:
		runtime.Goexit()
	case 2:
		return errors.New("at random")
	}
	return nil
}

// Whatever the order and the deadlines of the calls, their results are accurate: nil
// means done, and ErrStopping or ErrRejected of an Add means that the task will not
// start. No task runs twice at the same time.
func TestW1_ResultsAreAccurate(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			runner := &randomTasks{runs: map[string]*atomic.Int32{}}
			tasks := make([]string, 6)
			for i := range tasks {
				tasks[i] = fmt.Sprint("t", i)
				runner.runs[tasks[i]] = new(atomic.Int32)
			}
			slots := 1 + random.IntN(4)
			opts := []worker.Option{worker.WithSlots(slots), worker.WithBackoff(time.Second, 3*time.Second)}
			if random.IntN(2) == 0 {
				opts = append(opts, worker.WithCompletion(func(string) {}))
			}
			w := newWorker(t, runner.run, opts...)

			refused := map[string]bool{} // tasks that must not be in List at the end
			for range 200 {
				task := tasks[random.IntN(len(tasks))]
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(3000)-200)*time.Millisecond)
				if random.IntN(2) == 0 {
					err := w.Add(ctx, task)
					delete(refused, task)
					switch {
					case err == nil:
						require.Contains(t, list(t, w), task)
					case errors.Is(err, orchestrator.ErrStopping):
						refused[task] = true
					default:
						require.ErrorIs(t, err, orchestrator.ErrRejected)
						if !slices.Contains(list(t, w), task) {
							refused[task] = true
						}
					}
				} else {
					err := w.Remove(ctx, task)
					switch {
					case err == nil:
						require.NotContains(t, list(t, w), task)
						require.Zero(t, runner.runs[task].Load())
						refused[task] = true
					case errors.Is(err, orchestrator.ErrStopping):
						refused[task] = true
					default:
						require.ErrorIs(t, err, orchestrator.ErrRejected)
					}
				}
				cancel()
				if random.IntN(10) == 0 {
					<-time.After(5 * time.Second) // every stop ends within 3 s
					for task := range refused {
						require.NotContains(t, list(t, w), task)
						require.Zero(t, runner.runs[task].Load())
					}
				}
			}
			require.NoError(t, w.Close(t.Context()))
			require.False(t, runner.twice.Load())
			require.LessOrEqual(t, int(runner.most.Load()), slots)
			require.Zero(t, runner.running.Load())
		})
	}
}

// Calls from many goroutines at the same time, with weaker checks.
func TestW1_ConcurrentCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runner := &randomTasks{runs: map[string]*atomic.Int32{"a": new(atomic.Int32), "b": new(atomic.Int32)}}
		w := newWorker(t, runner.run, worker.WithSlots(1), worker.WithBackoff(time.Second, time.Second))
		done := make(chan struct{})
		for i := range 8 {
			go func() {
				defer func() { done <- struct{}{} }()
				for n := range 100 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(i+n)%4)*time.Second)
					task := []string{"a", "b"}[(i+n)%2]
					switch (i + n) % 3 {
					case 0:
						_ = w.Add(ctx, task)
					case 1:
						_ = w.Remove(ctx, task)
					case 2:
						_ = w.Apply(ctx, add("a", "b"))
						_ = w.Status()
					}
					cancel()
				}
			}()
		}
		for range 8 {
			<-done
		}
		require.NoError(t, w.Close(t.Context()))
		require.False(t, runner.twice.Load())
		require.LessOrEqual(t, int(runner.most.Load()), 1)
		require.Zero(t, runner.running.Load())
	})
}

func BenchmarkAddRemove(b *testing.B) {
	for _, others := range []int{0, 10_000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			w, err := worker.New(func(ctx context.Context, _ int) error {
				<-ctx.Done()
				return nil
			})
			require.NoError(b, err)
			for i := range others {
				require.NoError(b, w.Add(b.Context(), -1-i))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				_ = w.Add(b.Context(), i)
				_ = w.Remove(b.Context(), i)
			}
			require.NoError(b, w.Close(b.Context()))
		})
	}
}

// coordinator grants one lease after another to one worker, over a connection that
// delays and drops messages. It knows when each lease ends. The scope of a task's
// token is the number of the lease under which the task was started.
type coordinator struct {
	t *testing.T
	w *worker.Worker[string]

	mu      sync.Mutex
	random  *rand.Rand
	ends    map[uint64]time.Time // by number
	lease   uint64               // the number of the present lease
	running map[string]int
	told    map[string]int64  // the last version given to the present run of a task
	tokens  map[string]uint64 // the token of the run
}

func (c *coordinator) chance(n int) bool { return c.number(n) == 0 }

func (c *coordinator) number(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

// within waits for a random time below d.
func (c *coordinator) within(d time.Duration) <-chan time.Time {
	return time.After(time.Duration(c.number(int(d))))
}

// renew sends one request to renew the lease, which may be dropped.
func (c *coordinator) renew(lease uint64, acknowledged func()) {
	<-c.within(4 * time.Second)
	if c.chance(4) {
		return
	}
	c.mu.Lock()
	end, granted := c.ends[lease]
	ended := granted && !time.Now().Before(end)
	if !ended {
		c.ends[lease] = time.Now().Add(length)
	}
	c.mu.Unlock()
	<-c.within(4 * time.Second)
	if !ended && !c.chance(4) {
		acknowledged()
	}
}

// keep renews a lease until ctx ends, with occasional pauses that are longer than
// the lease allows.
func (c *coordinator) keep(ctx context.Context, lease uint64) {
	for ctx.Err() == nil {
		go c.renew(lease, c.w.Sending())
		pause := 4 * time.Second
		if c.chance(10) {
			pause = 25 * time.Second
		}
		select {
		case <-ctx.Done():
		case <-c.within(pause):
		}
	}
}

// holds fails the test unless at least the margin of the lease is left.
func (c *coordinator) holds(ctx context.Context, what string) {
	_, lease := worker.Token(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if left := time.Until(c.ends[lease]); left < length-resort {
		c.t.Errorf("%s %v before the end of lease %d", what, left, lease)
	}
}

func (c *coordinator) run(ctx context.Context, task string) error {
	_, version := worker.Content(ctx)
	token, _ := worker.Token(ctx)
	c.holds(ctx, "start of "+task)
	c.mu.Lock()
	if c.running[task]++; c.running[task] > 1 {
		c.t.Errorf("%s runs twice", task)
	}
	if token == c.tokens[task] && version < c.told[task] && c.running[task+" told"] == 0 {
		c.t.Errorf("%s runs with version %d after %d", task, version, c.told[task])
	}
	if token != c.tokens[task] || version > c.told[task] {
		c.tokens[task], c.told[task] = token, version
	}
	c.mu.Unlock()
	defer func() {
		c.holds(ctx, "end of "+task)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running[task]--
	}()
	if c.chance(2) {
		worker.Ready(ctx)
	}
	select {
	case <-ctx.Done():
		<-c.within(toStop)
	case <-c.within(time.Minute):
		if worker.Check(ctx) == nil {
			c.holds(ctx, "good check by "+task)
		}
	}
	return errors.New("at random")
}

func (c *coordinator) update(ctx context.Context, task string) error {
	_, version := worker.Content(ctx)
	token, _ := worker.Token(ctx)
	c.mu.Lock()
	if c.running[task+" told"]++; c.running[task+" told"] > 1 {
		c.t.Errorf("%s gets two updates at the same time", task)
	}
	if token == c.tokens[task] && version <= c.told[task] {
		c.t.Errorf("%s gets version %d after %d", task, version, c.told[task])
	}
	c.tokens[task], c.told[task] = token, version
	c.mu.Unlock()
	defer func() {
		c.holds(ctx, "end of an update of "+task)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running[task+" told"]--
	}()
	select {
	case <-ctx.Done():
		<-c.within(toStop)
	case <-c.within(3 * time.Second):
	}
	if c.chance(5) {
		return errors.New("at random")
	}
	return nil
}

// checkUpdates waits until no update is under way, and checks that each task runs with its
// newest content and token.
func (c *coordinator) checkUpdates() {
	<-time.After(10 * time.Second)
	synctest.Wait()
	for _, s := range c.w.Status() {
		c.mu.Lock()
		told, token := c.told[s.Task], c.tokens[s.Task]
		c.mu.Unlock()
		if s.State == worker.Running && (told != s.Version || token != s.Token) {
			c.t.Errorf("%s runs version %d token %d, the worker has %d and %d", s.Task, told, token, s.Version, s.Token)
		}
	}
}

// Whatever messages between the worker and the coordinator are lost or late, no task
// runs when the lease may have ended. The last update of a task is delivered.
func TestW5_W7_NothingOutlivesItsLease(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			c := &coordinator{
				t: t, random: rand.New(rand.NewPCG(seed, 5)), ends: map[uint64]time.Time{},
				running: map[string]int{}, told: map[string]int64{}, tokens: map[string]uint64{},
			}
			opts := []worker.Option{
				worker.WithLease(length, toStop), worker.WithBackoff(time.Second, 3*time.Second),
				worker.WithLastResort(func(tasks []string) { t.Errorf("%v have not stopped", tasks) }),
			}
			if seed%2 == 0 {
				opts = append(opts, worker.WithUpdate(c.update))
			}
			if seed%3 == 0 {
				opts = append(opts, worker.WithSlots(2))
			}
			if seed%5 == 0 {
				opts = append(opts, worker.WithReadiness())
			}
			c.w = newWorker(t, c.run, opts...)
			var version int64
			for c.lease = 1; c.lease < 6; c.lease++ {
				ctx, cancel := context.WithCancel(t.Context())
				var keeper sync.WaitGroup
				keeper.Go(func() { c.keep(ctx, c.lease) })
				for range 150 {
					c.step(&version)
					if fenced(c.w) {
						break
					}
				}
				cancel()
				keeper.Wait()
				require.NoError(t, c.w.Rejoin(t.Context()))
				require.Empty(t, list(t, c.w))
			}
			require.NoError(t, c.w.Close(t.Context()))
			<-time.After(time.Minute) // messages under way arrive
		})
	}
}

// step makes one random step of a leader or of the environment.
func (c *coordinator) step(version *int64) {
	*version++
	task := fmt.Sprint("t", c.number(4))
	g := worker.Grant{Version: *version - int64(c.number(3)), Token: uint64(*version), Scope: c.lease}
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Duration(1+c.number(int(2*time.Second))))
	defer cancel()
	var err error
	switch c.number(10) {
	case 0, 1, 2:
		err = c.w.AddWith(ctx, task, g)
	case 3, 4, 5, 6:
		err = c.w.Update(ctx, task, worker.Grant{Version: g.Version})
	case 7, 8:
		err = c.w.Remove(ctx, task)
	case 9:
		if c.chance(20) {
			c.w.EndLease(errors.New("at random"))
		} else {
			c.checkUpdates()
		}
	}
	if err != nil && !errors.Is(err, orchestrator.ErrRejected) && !errors.Is(err, orchestrator.ErrStopping) {
		require.ErrorIs(c.t, err, context.DeadlineExceeded)
	}
}
