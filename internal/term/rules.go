package term

// The rules of placement: which workers may run which tasks, in which zones, and how many.

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator/rebalance"
)

// WorkerRules holds the settings of a worker that rules refer to. It does not change.
type WorkerRules struct {
	Zone     string
	Labels   []string // in order, without repetitions
	Share    int32    // at least 1
	MaxTasks int32    // 0: no limit
	Host     string   // no rule
}

var noRules = &WorkerRules{Share: 1}

// rulesOf returns the settings of a worker.
func rulesOf(w *Worker) *WorkerRules {
	return cmp.Or(w.Rules, noRules)
}

// rules holds what follows from the settings of the tasks and the workers. It is made again
// only if these change.
type rules struct {
	stale bool
	// ruled: some rule is set. Otherwise what follows is empty.
	ruled bool
	// kind is, by worker, its kind, and may lists, by class, the kinds that may run it, in
	// ascending order; a nil list admits all. Both are nil if no task requires labels.
	kind []int32
	may  [][]int32
	// labels holds, by kind, those labels of its workers that some class names, in order.
	labels [][]string
	// zone is, by worker, the number of its zone; nil if there is one.
	zone  []int32
	zones int32
	// share and maxTasks are by worker; nil if all shares are the same, or none has a limit.
	share, maxTasks []int32
}

// refresh makes the rules again if the settings changed, and reports whether they did. It
// takes O(tasks' classes · kinds) at most, and O(1) for each class that requires a label of one
// kind.
func (f *Fleet) refresh(t *Tasks) bool {
	r := &f.rules
	if !r.stale {
		return false
	}
	*r = rules{zones: 1}
	r.findKinds(f.Workers, t.Requires)
	r.findZones(f.Workers)
	r.findLimits(f.Workers)
	r.ruled = r.may != nil || r.zone != nil || r.share != nil || r.maxTasks != nil || t.MaxPerZone != nil
	return true
}

// findKinds finds the kinds: workers are of one kind if they have the same labels of those
// that some class names.
func (r *rules) findKinds(workers []*Worker, requires [][]string) {
	named := make(map[string][]int32) // by label: the kinds that have it, in ascending order
	for _, labels := range requires {
		for _, label := range labels {
			named[strings.TrimPrefix(label, "!")] = nil
		}
	}
	if len(named) == 0 {
		return
	}
	kinds := make(map[string]int32)
	r.kind = make([]int32, len(workers))
	var own []string
	for i, w := range workers {
		own = own[:0]
		for _, label := range rulesOf(w).Labels {
			if _, ok := named[label]; ok {
				own = append(own, label)
			}
		}
		key := strings.Join(own, ",")
		k, known := kinds[key]
		if !known {
			k = int32(len(r.labels))
			kinds[key] = k
			r.labels = append(r.labels, slices.Clone(own))
			for _, label := range own {
				named[label] = append(named[label], k)
			}
		}
		r.kind[i] = k
	}
	r.may = make([][]int32, len(requires))
	for c, labels := range requires {
		if len(labels) > 0 {
			r.may[c] = r.admitted(labels, named)
		}
	}
}

// admitted returns the kinds that have what some labels require. It looks only at those with
// the rarest label, if one must be there.
func (r *rules) admitted(requires []string, named map[string][]int32) []int32 {
	var candidates []int32
	must := false
	for _, label := range requires {
		if label[0] != '!' && (!must || len(named[label]) < len(candidates)) {
			candidates, must = named[label], true
		}
	}
	if !must {
		candidates = make([]int32, len(r.labels))
		for k := range candidates {
			candidates[k] = int32(k)
		}
	}
	kinds := make([]int32, 0, len(candidates)) // not nil, which would admit all
	for _, k := range candidates {
		if lacking(r.labels[k], requires) == "" {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// lacking returns the first of the required labels that some labels, in order, do not fulfil,
// or "".
func lacking(labels, requires []string) string {
	for _, label := range requires {
		name, not := strings.CutPrefix(label, "!")
		if _, has := slices.BinarySearch(labels, name); has == not {
			return label
		}
	}
	return ""
}

// Lacks returns the first of the required labels that a worker does not fulfil, or "". rules
// may be nil.
func Lacks(rules *WorkerRules, requires []string) string {
	return lacking(cmp.Or(rules, noRules).Labels, requires)
}

// findZones numbers the zones by their names.
func (r *rules) findZones(workers []*Worker) {
	number := make(map[string]int32)
	for _, w := range workers {
		number[rulesOf(w).Zone] = 0
	}
	if len(number) < 2 {
		return
	}
	names := slices.Sorted(maps.Keys(number))
	for z, name := range names {
		number[name] = int32(z)
	}
	r.zones, r.zone = int32(len(names)), make([]int32, len(workers))
	for i, w := range workers {
		r.zone[i] = number[rulesOf(w).Zone]
	}
}

// findLimits finds the shares and the limits of the workers.
func (r *rules) findLimits(workers []*Worker) {
	var shared, limited bool
	for _, w := range workers {
		own := rulesOf(w)
		shared = shared || own.Share != rulesOf(workers[0]).Share
		limited = limited || own.MaxTasks > 0
	}
	for _, w := range workers {
		if shared {
			r.share = append(r.share, rulesOf(w).Share)
		}
		if limited {
			r.maxTasks = append(r.maxTasks, rulesOf(w).MaxTasks)
		}
	}
}

// mayRun reports whether the labels of a worker, by index, admit tasks of a class.
func (r *rules) mayRun(class int32, worker int) bool {
	if r.may == nil || r.may[class] == nil {
		return true
	}
	_, ok := slices.BinarySearch(r.may[class], r.kind[worker])
	return ok
}

// zoneOf returns the number of the zone of a worker, by index.
func (r *rules) zoneOf(worker int) int32 {
	if r.zone == nil {
		return 0
	}
	return r.zone[worker]
}

// classOf returns the class of a task.
func (t *Tasks) classOf(task int32) int32 {
	if t.Class == nil {
		return 0
	}
	return t.Class[task]
}

// zoneCap returns the most copies of a task in one zone, and false if the task sets no such
// limit.
func (t *Tasks) zoneCap(task int32) (int32, bool) {
	if t.MaxPerZone == nil || t.MaxPerZone[task] <= 0 {
		return 0, false
	}
	return t.MaxPerZone[task], true
}

// addRules adds the rules to the planner's problem. It takes O(workers) if there are any.
func (d *decider) addRules() {
	p, r := &d.problem, &d.fleet.rules
	p.Class, p.Kind, p.May, p.Zone, p.Share, p.MaxTasks = nil, nil, nil, nil, nil, nil
	p.MaxPerZone, p.Weight, p.Band = d.expect.MaxPerZone, d.expect.weight, d.cfg.Band
	d.addRests()
	if !r.ruled {
		return
	}
	if r.may != nil {
		p.Class, p.May, p.Kind = d.expect.Class, r.may, d.byPlace(r.kind)
	}
	p.Zone, p.Share, p.MaxTasks = d.byPlace(r.zone), d.byPlace(r.share), d.byPlace(r.maxTasks)
	if p.MaxTasks != nil {
		d.countLeaving()
	}
}

// moved is the last move of a task for an even spread by weight, and the newest worker then.
type moved struct {
	at     time.Time
	newest uint64 // its serial
}

// rests reports whether the task moves to later workers only, which it does for a minute.
func (m moved) rests(now Moment) bool { return now.Time.Sub(m.at) < time.Minute }

// addRests adds the tasks that rest to the planner's problem.
func (d *decider) addRests() {
	p, f := &d.problem, d.fleet
	p.Rests, p.Joined = nil, d.index
	for task, m := range f.moved {
		if d.expect.weight != nil {
			if p.Rests == nil {
				p.Rests = make([]int32, len(p.Want))
			}
			i, _ := slices.BinarySearchFunc(f.Workers, m.newest+1, func(w *Worker, s uint64) int { return cmp.Compare(w.Serial, s) })
			p.Rests[task] = int32(i)
		}
	}
}

// countLeaving lowers the limits of workers by the copies that the plan does not count and that
// are still there, because their stop failed. Otherwise a start could wait for their room while
// another worker has some.
func (d *decider) countLeaving() {
	p := &d.problem
	lower := func(at int32) {
		switch p.MaxTasks[at] {
		case 0: // no limit
		case 1:
			p.MaxTasks[at] = rebalance.NoTasks
		case rebalance.NoTasks:
		default:
			p.MaxTasks[at]--
		}
	}
	for _, x := range d.leaving {
		if x.gone {
			lower(x.Worker)
		}
	}
	for at, i := range d.index {
		for task, s := range d.fleet.Workers[i].stops {
			if s.failures > 0 && d.expect.Instances[task] == 0 {
				lower(int32(at))
			}
		}
	}
}

// byPlace returns values of workers in the planner's order; nil for nil.
func (d *decider) byPlace(values []int32) []int32 {
	if values == nil {
		return nil
	}
	placed := make([]int32, len(d.index))
	for at, i := range d.index {
		placed[at] = values[i]
	}
	return placed
}

// brokenRule returns which rule evicts a copy from a worker, by index.
func (d *decider) brokenRule(task, worker int32) Reason {
	r := &d.fleet.rules
	switch limit := rulesOf(d.fleet.Workers[worker]).MaxTasks; {
	case !r.mayRun(d.expect.classOf(task), int(worker)):
		return ReasonRequires
	case limit > 0 && len(d.fleet.Workers[worker].runs) > int(limit):
		return ReasonLimit
	}
	return ReasonZone
}

// SetWeights sets the weights of the tasks, by number. 0 stands for the mean of the others, or
// 1 without any, and so does a number beyond the slice. SetWeights rounds the weights, so
// that noise does not make all differ.
func (t *Tasks) SetWeights(weights []int64) {
	t.weight = nil
	var given, high, low uint64
	for _, weight := range weights {
		if weight > 0 {
			var carry uint64
			low, carry = bits.Add64(low, uint64(weight), 0)
			high += carry
			given++
		}
	}
	if given == 0 {
		return
	}
	mean, _ := bits.Div64(high, low, given)
	rounded := slices.Repeat([]rebalance.Weight{rebalance.RoundWeight(int64(mean))}, max(len(t.Instances), len(weights)))
	same := true
	for i, weight := range weights {
		if weight > 0 {
			rounded[i] = rebalance.RoundWeight(weight)
		}
		same = same && rounded[i] == rounded[0]
	}
	if !same {
		t.weight = rounded
	}
}
