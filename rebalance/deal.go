package rebalance

import "slices"

// A shortcut for many missing copies: all workers that may run them fill up to a common height, in turn.
// With labels the levels of hubs say how many copies of each class a hub gets. What the shortcut leaves
// over is placed one by one, and what it makes uneven is evened.

// bulk is the number of copies from which on a pass over all workers pays.
const bulk = 128

// dealer deals missing copies.
type dealer struct {
	levels  levels
	sums    []int64 // by class: its missing copies
	workers []int32 // those to deal to, and
	quota   []int32 // how many copies each gets
}

// deal gives the missing copies of some tiers to the workers with the least.
func (p *Planner) deal(from, to tier) {
	s, items := &p.state, p.keeping.items
	if s.weights != nil || s.zoned || len(s.barred) > 0 {
		return
	}
	for i := 0; i < len(items) && items[i].from == None && items[i].tier <= to; {
		n := i + 1
		for n < len(items) && items[n].tier == items[i].tier {
			n++
		}
		if items[i].tier >= from && n-i >= bulk {
			if s.inUse = false; s.labels {
				p.dealClasses(items[i:n])
			} else {
				p.dealer.listTakers(s, s.ofHub)
				p.dealTo(items[i:n])
			}
			s.rank(endless)
		}
		i = n
	}
}

// dealClasses deals copies of all classes, those of a class one after the other.
func (p *Planner) dealClasses(items []item) {
	s, d, l := &p.state, &p.dealer, &p.dealer.levels
	d.sums, l.share, l.base = sized(d.sums, len(s.May)), sized(l.share, len(s.hubs)), sized(l.base, len(s.hubs))
	for i := range items {
		d.sums[s.class(items[i].task)]++
	}
	for w := range s.workers {
		if at := &s.workers[w]; at.state == Open {
			l.share[at.hub] += int64(at.share)
			l.base[at.hub] += int64(at.remaining())
		}
	}
	if !l.solve(s, d.sums, 8*len(items)) {
		return // of few copies for many hubs each goes to the best worker
	}
	for len(items) > 0 {
		c := s.class(items[0].task)
		n := 1
		for n < len(items) && s.class(items[n].task) == c {
			n++
		}
		// What is rounded off at a hub is added at the next one.
		rest, next := int64(1)<<l.unit/1024*int64(mix(c, 3)%1024), 0
		for i, h := range l.hubs[c] {
			rest += l.part[c][i]
			quota := min(int(rest>>l.unit), n-next)
			rest &= 1<<l.unit - 1
			d.listTakers(s, s.members(h))
			p.dealTo(items[next : next+quota])
			next += quota
		}
		items = items[n:]
	}
}

// listTakers lists those of some workers that can gain.
func (d *dealer) listTakers(s *state, workers []int32) {
	d.workers = append(d.workers[:0], workers...)
	d.workers = slices.DeleteFunc(d.workers, func(w int32) bool { return s.workers[w].state != Open || !s.workers[w].hasRoom() })
}

// dealTo deals copies to the workers in d.workers, of which each takes every one that it does not run.
func (p *Planner) dealTo(items []item) {
	s, d := &p.state, &p.dealer
	n := len(d.workers)
	if n == 0 || len(items) == 0 {
		return
	}
	height, left := s.fillTo(d.workers, int64(len(items))), len(items)
	d.quota = roomy(d.quota, n)
	for i, w := range d.workers {
		d.quota[i] = int32(s.missingTo(w, height))
		left -= int(d.quota[i])
	}
	for k := range d.workers { // less than one for each is left
		i := (k + int(mix(int32(n), int32(height)))) % n
		if w := d.workers[i]; left > 0 && s.workers[w].share == 1 && s.missingTo(w, height+1) > int64(d.quota[i]) {
			d.quota[i]++
			left--
		}
	}
	// Each round begins at another worker and goes in other steps, so that copies that come one after
	// the other, such as those of a task, meet on other workers each time.
	for round, next, idle := int32(0), 0, false; next < len(items) && !idle; round++ {
		at, step, before := int(mix(round, 1))%n, stepFor(n, round), p.placed
		for range n {
			i := at
			if at += step; at >= n {
				at -= n
			}
			if d.quota[i] <= 0 {
				continue
			}
			for next < len(items) && items[next].copy == placed {
				next++
			}
			w := d.workers[i]
			for k := next; k < min(next+4, len(items)); k++ {
				if x := &items[k]; x.copy != placed && s.fits(x.task, w) {
					x.copy = placed
					p.placed++
					s.put(x.task, w)
					d.quota[i]--
					break
				}
			}
		}
		idle = p.placed == before
		if idle && next < len(items) && s.Want[items[next].task] > s.open { // its last copies have no place, the next task's have
			for stuck := items[next].task; next < len(items) && items[next].task == stuck; next++ {
				idle = false
			}
		}
	}
}

// stepFor returns a step with which one comes to each of n places.
func stepFor(n int, round int32) int {
	step := 1 + int(mix(round, 2))%n
	for gcd(step, n) != 1 {
		step = step%n + 1
	}
	return step
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// fillTo returns the highest load by share to which n copies fill some workers, or less.
func (s *state) fillTo(workers []int32, n int64) int64 {
	low, high := int64(0), n+1
	for _, w := range workers {
		high = max(high, int64(s.workers[w].remaining())+n+1)
	}
	for high-low > 1 {
		mid, sum := (low+high)/2, int64(0)
		for _, w := range workers {
			sum += s.missingTo(w, mid)
		}
		if sum <= n {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// missingTo returns how many copies w takes to reach a load by share.
func (s *state) missingTo(w int32, height int64) int64 {
	at := &s.workers[w]
	return max(0, min(height*int64(at.share)-int64(at.remaining()), int64(at.room-at.load)))
}
