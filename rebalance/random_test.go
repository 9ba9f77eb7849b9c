package rebalance_test

// Random problems, as many as the flags say, all small ones, and problems decoded from
// bytes. `make prove` runs a million random ones.

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

var (
	problems = flag.Int("rebalance.problems", 2_500, "how many random problems to plan at most")
	seed     = flag.Uint64("rebalance.seed", 1, "the number of the first random problem; 0 draws one")
	small    = flag.Int("rebalance.small", 7, "plan one in so many of the small problems")
	limit    = flag.Duration("rebalance.for", 0, "how long to go on with new problems; 0 is until all are planned")
)

// numbered returns the random problem of a number, and the name of its shape.
// The shapes take turns; in one turn of two hundred the problems are larger.
func numbered(number uint64) (*rebalance.Problem, string) {
	turn, s := number/uint64(len(shapes)), shapes[number%uint64(len(shapes))]
	if turn%200 == 199 {
		return s.large(number), "larger " + s.name
	}
	return s.make(number), s.name
}

func TestP_RandomProblemsKeepEveryClause(t *testing.T) {
	t.Parallel()
	began := time.Now()
	r := run{flag: "rebalance.problems", make: numbered, examine: examine}
	r.plan(t, *problems)
	took := time.Since(began).Round(time.Millisecond)
	_, _ = fmt.Fprintf(t.Output(), "%d problems, seed %d, %v: P1 to P8 and P24 hold; %s\n", r.done, r.first, took, r.distances())
}

// In these problems copies start while a limit keeps moves back. Repeated calls did not converge.
func TestP6_ProblemsThatWereHard(t *testing.T) {
	t.Parallel()
	for _, number := range []uint64{249_391_037, 249_840_798, 250_420_218} {
		pr, name := numbered(number)
		_, err := examine(pr, new(rebalance.Planner))
		require.NoError(t, err, "%d, %s", number, name)
	}
}

// run plans the problems of a test, which have numbers from first up to end.
type run struct {
	flag string // says how many problems to plan
	// make returns the problem of a number, or nil if there is none, and the name of its shape.
	make func(number uint64) (*rebalance.Problem, string)
	// examine plans a problem with a new planner and with one that planned others before.
	examine func(pr *rebalance.Problem, used *rebalance.Planner) (gap, error)

	test       string
	first, end uint64
	late       func() bool

	mu      sync.Mutex // guards the fields below
	next    uint64
	done    int
	tallies map[string]*tally // by what the problem is restricted by
	failure string
}

// firstNumber returns the number of the first problem and prints it.
func firstNumber(t *testing.T) uint64 {
	first := *seed
	if first == 0 {
		first = 1 + rand.Uint64N(1e12)
	}
	t.Logf("problems from number %d on: -rebalance.seed=%d", first, first)
	return first
}

// plan examines problems on all processors. It prints the number of the first one, which
// repeats the run, and for a failure the command that repeats it.
func (r *run) plan(t *testing.T, problems int) {
	r.test, r.first, r.tallies = t.Name(), firstNumber(t), make(map[string]*tally)
	r.next, r.end = r.first, r.first+uint64(problems)
	began := time.Now()
	r.late = func() bool { return *limit > 0 && time.Since(began) >= *limit }
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(r.work)
	}
	wg.Wait()
	if r.failure != "" {
		t.Fatal(r.failure)
	}
}

// block is how many problems in a row share a planner, which must make the same plans as
// a new one.
const block = 64

// work examines one block of problems after the other.
func (r *run) work() {
	for {
		from, to := r.take()
		if from == to {
			return
		}
		gaps := make([]gap, 0, block)
		var used rebalance.Planner
		for number := from; number < to; number++ {
			pr, name := r.make(number)
			if pr == nil {
				continue
			}
			g, err := r.check(pr, &used)
			if err != nil {
				r.fail(r.report(pr, name, err, from, number))
				return
			}
			gaps = append(gaps, g)
		}
		r.count(gaps)
	}
}

// check examines a problem. It returns a panic as an error.
func (r *run) check(pr *rebalance.Problem, used *rebalance.Planner) (g gap, err error) {
	defer recovered(&err)
	return r.examine(pr, used)
}

// recovered turns a panic into an error. It must be deferred.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
	}
}

// alone examines a problem with new planners only.
func (r *run) alone(pr *rebalance.Problem) error {
	_, err := r.check(pr, new(rebalance.Planner))
	return err
}

// take returns the next block, or an empty one at the end.
func (r *run) take() (from, to uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure != "" || r.late() {
		return r.next, r.next
	}
	from = r.next
	r.next = min(r.end, from+block)
	return from, r.next
}

func (r *run) count(gaps []gap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range gaps {
		if r.tallies[g.class] == nil {
			r.tallies[g.class] = new(tally)
		}
		r.tallies[g.class].add(g)
		r.done++
	}
}

func (r *run) fail(failure string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = failure
}

// distances describes by how many starts the plans exceed the minimum if the minimum is
// not promised.
func (r *run) distances() string {
	promised := r.tallies[""]
	if promised == nil {
		promised = new(tally)
	}
	text := fmt.Sprintf("no start beyond the minimum in the %d where it is promised", promised.problems)
	sep := "; elsewhere "
	for _, class := range restrictions {
		if t := r.tallies[class]; t != nil && t.measured > 0 {
			text += fmt.Sprintf("%s%s %.3f%% (at worst %d; known of %d in %d)",
				sep, class, 100*float64(t.above)/float64(max(1, t.starts)), t.worst, t.measured, t.problems)
			sep = ", "
		}
	}
	return text
}

// report describes the failure of a problem, which was examined after all from number
// from on, and the command that repeats it.
func (r *run) report(pr *rebalance.Problem, name string, err error, from, number uint64) string {
	again := func(first uint64) string {
		command := fmt.Sprintf("go test ./rebalance -count=1 -run '^%s$' -rebalance.seed=%d -%s=%d", r.test, first, r.flag, number-first+1)
		if *ruledShape != "" {
			command += " -rebalance.shape=" + *ruledShape
		}
		return command
	}
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "problem %d, %s: %v\n\n%s\n", number, name, err, describe(pr))
	if r.alone(pr) == nil {
		_, _ = fmt.Fprintf(&b, "only a planner that planned others before gets it wrong\nagain: %s", again(from))
		return b.String()
	}
	small := shrink(pr, err, r.alone)
	_, _ = fmt.Fprintf(&b, "as small as it gets: %v\n\n%s\nas code: %#v\n\nagain: %s", r.alone(small), describe(small), *small, again(number))
	return b.String()
}

func TestP_ShrinkKeepsTheFailure(t *testing.T) {
	t.Parallel()
	pr := shapes[len(shapes)-1].make(7)
	require.Equal(t, pr, clone(pr))
	for _, less := range smaller(pr) {
		require.Len(t, less.Running, len(less.States))
	}
}

// The checks find a plan in which one thing was changed.
func TestP_ThePlanWithOneThingWrongIsFound(t *testing.T) {
	t.Parallel()
	plans, wrong := 0, 0
	for _, s := range shapes {
		for at := range uint64(40) {
			pr := s.make(at)
			plan, err := new(rebalance.Planner).Plan(pr)
			require.NoError(t, err)
			r := read(pr)
			passes := func(plan rebalance.Plan) bool {
				o, err := carryOut(r, plan)
				if err == nil {
					err = o.clauses()
				}
				if err == nil {
					_, err = o.distance()
				}
				return err == nil
			}
			if plan.Deferred > 0 || !r.free() && len(r.quarantined) > 0 {
				continue // less is promised
			}
			plans++
			for i, bad := range spoilt(plan) {
				wrong++
				require.False(t, passes(bad), "spoilt %d of\n%+v\nfor %#v", i, plan, *pr)
			}
		}
	}
	require.Greater(t, plans, 500)
	require.Greater(t, wrong, 10*plans)
}

// spoilt returns plans with one thing wrong each.
func spoilt(plan rebalance.Plan) (list []rebalance.Plan) {
	change := func(f func(*rebalance.Plan)) {
		c := plan
		c.Changes, c.Unplaced = slices.Clone(plan.Changes), slices.Clone(plan.Unplaced)
		f(&c)
		list = append(list, c)
	}
	change(func(p *rebalance.Plan) { p.Adds++ })
	change(func(p *rebalance.Plan) { p.Moves++ })
	change(func(p *rebalance.Plan) { p.LowerBound = p.Adds + 1 })
	change(func(p *rebalance.Plan) { p.LowerBound = -1 })
	for i, c := range plan.Changes {
		change(func(p *rebalance.Plan) { p.Changes = append(p.Changes, c) })
		change(func(p *rebalance.Plan) { p.Changes[i].Reason++ })
		change(func(p *rebalance.Plan) { p.Changes[i].From, p.Changes[i].To = c.To, c.From })
		change(func(p *rebalance.Plan) {
			p.Changes = slices.Delete(p.Changes, i, i+1)
			if c.To != none {
				p.Adds--
				p.LowerBound = min(p.LowerBound, p.Adds)
			}
			if c.To != none && c.From != none {
				p.Moves--
			}
		})
		if c.From != none && c.To != none {
			change(func(p *rebalance.Plan) { // a move as a stop and a start
				p.Changes[i] = rebalance.Change{Task: c.Task, From: c.From, To: none, Reason: rebalance.Surplus}
				p.Changes = append(p.Changes, rebalance.Change{Task: c.Task, From: none, To: c.To, Reason: rebalance.Missing})
				p.Moves--
			})
		}
	}
	for i := range plan.Unplaced {
		change(func(p *rebalance.Plan) { p.Unplaced = slices.Delete(p.Unplaced, i, i+1) })
		change(func(p *rebalance.Plan) { p.Unplaced = append(p.Unplaced, p.Unplaced[i]) })
		change(func(p *rebalance.Plan) { p.Unplaced[i].Copies++ })
		change(func(p *rebalance.Plan) { p.Unplaced[i].Reason += 4 })
	}
	return list
}

// Every problem of a few workers and tasks, with every state of the workers
// if there are few enough.
func TestP_EverySmallProblem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                   string
		workers, tasks, states int
	}{
		{"3x3 open", 3, 3, 1}, {"2x4 open", 2, 4, 1}, {"4x2 open", 4, 2, 1}, {"2x2 any", 2, 2, 4}, {"3x2 any", 3, 2, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var used rebalance.Planner
			pr := &rebalance.Problem{
				Want: make([]int32, c.tasks), States: make([]rebalance.State, c.workers), Running: make([][]int32, c.workers),
				MaxMoves: noLimit,
			}
			digits := make([]int, c.tasks+2*c.workers) // wants, states, lists
			for n, next := 0, true; next; n++ {
				for i := range pr.Want {
					pr.Want[i] = int32(digits[i])
				}
				for w := range c.workers {
					pr.States[w] = rebalance.State(digits[c.tasks+w])
					pr.Running[w] = pr.Running[w][:0]
					for i := range c.tasks {
						if digits[c.tasks+c.workers+w]>>i&1 != 0 {
							pr.Running[w] = append(pr.Running[w], int32(i))
						}
					}
				}
				if n%*small == 0 {
					if _, err := examine(pr, &used); err != nil {
						t.Fatalf("%v\n%#v", err, *pr)
					}
				}
				next = false
				for i := range digits {
					limit := c.workers + 2
					if i >= c.tasks {
						limit = c.states
					}
					if i >= c.tasks+c.workers {
						limit = 1 << c.tasks
					}
					if digits[i]++; digits[i] < limit {
						next = true
						break
					}
					digits[i] = 0
				}
			}
		})
	}
}

// FuzzPlan reads a problem out of bytes and checks every clause.
func FuzzPlan(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{3, 6, 0})                                                       // nothing held
	f.Add([]byte{3, 6, 0, 1, 1, 1, 1, 1, 1, 0, 0b1101, 0, 0b10011, 0, 0b100010}) // drops chosen together
	f.Add([]byte{5, 9, 1, 2, 3, 2, 3, 2, 3, 2, 3, 2, 1, 0xff, 2, 0xf0, 3, 0x0f, 0, 0xaa, 0, 0x55})
	f.Add([]byte{4, 8, 2, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0xff, 0, 0, 0, 0, 0, 0, 1, 3, 2, 4, 0, 1, 1, 2})
	f.Add([]byte{4, 8, 4, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0xff, 0, 0x0f, 3, 0xf0, 0, 0, 4, 3, 9, 2})
	f.Add([]byte{4, 8, 15, 2, 2, 2, 2, 1, 1, 1, 0, 0, 0xff, 1, 0x0f, 2, 0xf0, 3, 0x3c, 0, 2, 3, 9, 2, 0, 0, 1, 1, 3})
	f.Fuzz(func(t *testing.T, data []byte) {
		pr := decode(data)
		if _, err := examine(pr, new(rebalance.Planner)); err != nil {
			t.Fatalf("%v\n%#v", err, *pr)
		}
	})
}

// decode makes a valid problem of any bytes: sizes, which limits there are,
// then wants, a state and a bit per task for each worker, pinned copies, a
// budget, forbidden pairs. Bytes that are not there are 0.
func decode(data []byte) *rebalance.Problem {
	next := func(n int) int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b) % n
	}
	workers, tasks, limits := next(9), next(25), next(32)
	pr := &rebalance.Problem{
		Want:     make([]int32, tasks),
		States:   make([]rebalance.State, workers),
		Running:  make([][]int32, workers),
		MaxMoves: rebalance.NoLimit,
	}
	for t := range pr.Want {
		pr.Want[t] = int32(next(workers + 3))
	}
	for w := range pr.States {
		pr.States[w] = rebalance.State(next(4))
		for t := 0; t < tasks; t += 8 {
			bits := next(256)
			for bit := range min(8, tasks-t) {
				if bits>>bit&1 != 0 {
					pr.Running[w] = append(pr.Running[w], int32(t+bit))
				}
			}
		}
	}
	if limits&1 != 0 {
		pr.Pinned = make([]int32, workers)
		for w, list := range pr.Running {
			pr.Pinned[w] = int32(next(len(list) + 1))
		}
	}
	if limits&2 != 0 {
		pr.MaxMoves = next(12)
	}
	for limits&4 != 0 && workers > 0 && tasks > 0 && len(data) > 0 {
		pr.Forbidden = append(pr.Forbidden, rebalance.Pair{Task: int32(next(tasks)), Worker: int32(next(workers))})
	}
	return pr
}
