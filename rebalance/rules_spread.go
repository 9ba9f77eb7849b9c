package rebalance

// Rules: the copies of each task are spread over the zones.

import (
	"cmp"
	"math"
	"slices"
)

// spread decides how many copies of each task each zone runs, and lets the copies leave that
// a zone has beyond that. It gives each copy to place a zone.
func (r *rules) spread() {
	r.askQuotas()
	q := &r.quotas
	q.solve()
	r.shrinkZones()
	slices.SortStableFunc(r.places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.task, b.task), cmp.Compare(a.tier, b.tier))
	})
	places := r.places
	r.places = r.zonedPlaces[:0]
	for len(places) > 0 {
		n := 1
		for n < len(places) && places[n].task == places[0].task {
			n++
		}
		r.giveZones(places[:n])
		places = places[n:]
	}
	r.zonedPlaces = places[:0]
}

// leaveZones lets the copies leave that a zone has beyond its cap, if the zones are not
// planned one by one. One pass over the tasks, and one over the lists if there are any.
func (r *rules) leaveZones() {
	q := &r.quotas
	r.askCaps()
	q.beginCaps()
	r.countLeaving(-1) // those leave anyway
	over := r.over[:0]
	for t := range int32(len(r.Want)) {
		if slices.Max(r.inZone[int(t)*r.zones:][:r.zones]) > q.capOf(t) {
			over = append(over, pending{task: t})
		}
	}
	if len(over) > 0 {
		r.find(over)
	}
	leaving := len(r.leaving)
	for _, x := range over {
		for z := range int32(r.zones) {
			for n := r.inZone[int(x.task)*r.zones+int(z)] - q.capOf(x.task); n > 0; n-- {
				h := r.fullest(x.task, z)
				if h == nil {
					break // the others are pinned or silent
				}
				r.firstOf[x.task]--
				i := r.leave(h.task, h.worker, h.position, EvictZone)
				r.places = append(r.places, place{task: h.task, copies: 1, tier: tierEvict, leaving: i})
			}
		}
	}
	r.over = over[:0]
	r.leaving, leaving = r.leaving[:leaving], len(r.leaving)
	r.countLeaving(1)
	r.leaving = r.leaving[:leaving]
}

// countLeaving adds n to the copies of the zones for each copy that leaves its worker.
func (r *rules) countLeaving(n int32) {
	for i := range r.leaving {
		if l := &r.leaving[i]; !l.stuck {
			r.inItsZone(l.task, l.worker, n)
		}
	}
}

// askCaps sets the input of the quotas that caps depend on.
func (r *rules) askCaps() {
	q := &r.quotas
	q.zones, q.wanted, q.target, q.class, q.rule, q.share, q.goal = r.zones, r.Want, r.target, r.Class, r.MaxPerZone, r.Share, nil
	r.askWorkers()
}

// askQuotas sets the input of the quotas.
func (r *rules) askQuotas() {
	r.askCaps()
	r.askCopies()
	if r.labels {
		r.askGoals()
	}
}

// askGoals sets how many copies of each class each zone should run: as many as in the best
// counts for all zones together. Without labels the shares of the zones say that.
func (r *rules) askGoals() {
	q := &r.quotas
	r.workers = r.workers[:0]
	for w, s := range r.States {
		if s == Open || s == Quarantined {
			r.workers = append(r.workers, int32(w))
		}
	}
	over := r.over[:0]
	for t, target := range r.target {
		if n := r.firstOf[t] - target; n > 0 {
			over = append(over, pending{int32(t), n})
		}
	}
	r.over = over
	r.count(0) // no copy has another zone yet
	r.over = over[:0]
	r.network.solve()
	r.goals = sized(r.goals, r.classes()*r.zones)
	q.ends = sized(q.ends, len(r.States))
	for i, w := range r.workers {
		q.ends[w] = r.network.base[i]
		for _, x := range r.network.count.row(int32(i)) {
			r.goals[int(x.class)*r.zones+int(r.zoneOf(w))] += x.copies
			q.ends[w] += x.copies
		}
	}
	q.goal = r.goals
}

// askWorkers counts, by class and zone, the workers that may run it.
func (r *rules) askWorkers() {
	q := &r.quotas
	workers, kinds := len(r.States), 1
	for w := range r.Kind {
		kinds = max(kinds, int(r.Kind[w])+1)
	}
	q.zone, q.load, q.limit = sized(q.zone, workers), sized(q.load, workers), nil
	if r.limits || r.has[Quarantined] {
		r.zoneLimits = sized(r.zoneLimits, workers)
		q.limit = r.zoneLimits
	}
	r.kinds[0], r.kinds[1] = sized(r.kinds[0], kinds*r.zones), sized(r.kinds[1], kinds*r.zones)
	for w, state := range r.States {
		w := int32(w)
		zone := r.zoneOf(w)
		q.zone[w], q.load[w] = None, r.load[w]
		if state == Open || state == Quarantined {
			q.zone[w] = zone
		}
		if q.limit != nil {
			q.limit[w] = r.mostInPlan(w)
		}
		if at := int(r.kindOf(w))*r.zones + int(zone); state != Draining {
			r.kinds[0][at]++
			if r.gain[w] > 0 {
				r.kinds[1][at]++
			}
		}
	}
	classes := r.classes()
	q.able, q.width = sized(q.able, classes*r.zones), sized(q.width, classes*r.zones)
	for c := range classes {
		able, width := q.able[c*r.zones:][:r.zones], q.width[c*r.zones:][:r.zones]
		add := func(kind int) {
			for z := range r.zones {
				able[z] += r.kinds[0][kind*r.zones+z]
				width[z] += r.kinds[1][kind*r.zones+z]
			}
		}
		if len(r.May) == 0 || r.May[c] == nil {
			for kind := range kinds {
				add(kind)
			}
			continue
		}
		for i, kind := range r.May[c] {
			if int(kind) < kinds && (i == 0 || r.May[c][i-1] != kind) {
				add(int(kind))
			}
		}
	}
}

// askCopies counts the copies of each task and zone. One pass over the lists.
func (r *rules) askCopies() {
	q := &r.quotas
	rows := len(r.Want) * r.zones
	q.held, q.holder = sized(q.held, rows), slices.Grow(q.holder[:0], rows)[:rows]
	q.fixed, q.pinned, q.extra = nil, nil, nil
	for i, of := range []struct {
		isUsed bool
		rows   *[]int32
	}{{r.has[Frozen], &q.fixed}, {r.Pinned != nil, &q.pinned}, {r.has[Quarantined], &q.extra}} {
		if of.isUsed {
			r.zoneRows[i] = sized(r.zoneRows[i], rows)
			*of.rows = r.zoneRows[i]
		}
	}
	for w, list := range r.Running {
		w := int32(w)
		isFrozen, gains, zone := r.States[w] == Frozen, r.gain[w] > 0, int(r.zoneOf(w))
		for k, flag := range r.flags[r.offset[w]:][:len(list)] {
			if !flag.runs() {
				continue
			}
			t := list[k]
			row := int(t)*r.zones + zone
			if isFrozen {
				if r.Want[t] > 0 {
					q.fixed[row]++
				}
				continue
			}
			q.held[row]++
			q.holder[row] = w
			switch {
			case flag == pinned:
				q.pinned[row]++
			case !gains:
				q.extra[row]++
			}
		}
	}
}

// mostInPlan returns how many copies w may run after this plan, NoLimit if as many as there
// are.
func (r *rules) mostInPlan(w int32) int32 {
	n := r.most(w)
	if r.States[w] == Quarantined {
		n = min(n, r.load[w]+r.gain[w])
	}
	if n == math.MaxInt32 {
		return NoLimit
	}
	return n
}

// shrinkZones lets the copies leave that a zone has beyond its quota.
func (r *rules) shrinkZones() {
	q := &r.quotas
	over := r.over[:0]
	for t := range r.Want {
		for z := range r.zones {
			if q.held[t*r.zones+z] > q.quota[t*r.zones+z] {
				over = append(over, pending{int32(t), 0})
				break
			}
		}
	}
	r.over = over
	if len(over) == 0 {
		return
	}
	r.find(over)
	// Tasks with copies that no zone takes come first: some stay, and count when the copies of
	// other tasks choose the worker to leave.
	for _, x := range q.unplaced {
		n := len(r.places)
		if r.shrink(x.task); n < len(r.places) {
			r.stayInZones(x.task, n)
		}
	}
	for _, x := range over {
		r.shrink(x.task)
	}
}

// shrink lets the copies of one task leave that a zone has beyond its quota.
func (r *rules) shrink(t int32) {
	q := &r.quotas
	stops := r.firstOf[t] - r.target[t]
	for _, evicts := range []bool{true, false} { // surplus copies stop first where the cap evicts
		for z := range int32(r.zones) {
			row := int(t)*r.zones + int(z)
			n := q.held[row] - q.quota[row]
			if evicts {
				n = min(n, stops, q.evicted(t, z))
			}
			for ; n > 0; n-- {
				h := r.fullest(t, z)
				if h == nil {
					break // the others are pinned
				}
				q.held[row]--
				r.firstOf[t]--
				if stops > 0 {
					stops--
					r.stop(h.task, h.worker, h.position)
					continue
				}
				r.leaveZone(h, row)
			}
		}
	}
}

// stayInZones counts those copies of t where they are, of the places from n on, for which no
// zone has room beside the others.
func (r *rules) stayInZones(t int32, n int) {
	room := int32(0)
	for z := range r.zones {
		row := int(t)*r.zones + z
		room += max(0, r.quotas.quota[row]-r.quotas.held[row])
	}
	for i := range r.places {
		if r.places[i].task == t {
			room -= r.places[i].copies
		}
	}
	for i := len(r.places) - 1; i >= n && room < 0; i-- {
		r.stayInZone(r.places[i].leaving)
		room++
	}
}

// leaveZone lets a copy leave its zone, which has row's quota.
func (r *rules) leaveZone(h *holder, row int) {
	why := Rebalance
	switch q := &r.quotas; {
	case q.held[row] >= max(q.quota[row], q.capOf(h.task)-q.fixedAt(row), q.pinnedAt(row)):
		why = EvictZone
	case r.load[h.worker] > r.most(h.worker):
		why = EvictLimit
	}
	r.leave(h.task, h.worker, h.position, why)
	r.places = append(r.places, place{task: h.task, copies: 1, tier: tierEvict, leaving: int32(len(r.leaving)) - 1})
}

// giveZones gives the copies of one task zones with room in their quotas. Copies that leave a
// worker stay in their zone if all have room.
func (r *rules) giveZones(places []place) {
	q := &r.quotas
	t := places[0].task
	room := r.room[:0]
	total, copies := int32(0), int32(0)
	for z := range int32(r.zones) {
		row := int(t)*r.zones + int(z)
		n := max(0, q.quota[row]-q.held[row])
		room = append(room, n)
		total += n
	}
	r.room = room
	for _, x := range places {
		copies += x.copies
	}
	give := func(x place, z int) {
		room[z]--
		x.part, x.copies = int32(z), 1
		r.places = append(r.places, x)
	}
	if total >= copies {
		for i := range places {
			x := &places[i]
			if x.leaving == None {
				continue
			}
			if z := r.zoneOf(r.leaving[x.leaving].worker); room[z] > 0 {
				give(*x, int(z))
				x.copies = 0
			}
		}
	}
	z := 0
	for _, x := range places {
		for ; x.copies > 0; x.copies-- {
			for z < len(room) && room[z] <= 0 {
				z++
			}
			if z == len(room) {
				r.stayInZone(x.leaving)
				r.rest = append(r.rest, item{task: t, class: r.classIn(t), tier: x.tier, leaving: x.leaving})
				continue
			}
			give(x, z)
		}
	}
}

// stayInZone counts a copy that no zone takes where it is, unless it leaves for evenness or a
// limit.
func (r *rules) stayInZone(i int32) {
	if i == None || r.leaving[i].why == Rebalance || r.leaving[i].why == EvictLimit {
		return
	}
	l := &r.leaving[i]
	if l.stuck {
		return
	}
	l.stuck = true
	r.load[l.worker]++
	r.stays[l.worker]++
}

// capOf returns how many copies of t zone z may run, with those on frozen workers.
func (r *rules) capOf(t, z int32) int32 {
	most := r.quotas.capOf(t)
	if r.maxPerZone(t) != 0 {
		return most
	}
	switch {
	case r.beyondCaps:
		return math.MaxInt32
	case !r.byZone: // no quotas
		return most
	}
	row := int(t)*r.zones + int(z)
	return max(most, r.quotas.quota[row]+r.quotas.fixedAt(row))
}
