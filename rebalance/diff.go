package rebalance

// The last step: the changes from what runs to the state, with their reasons.

import "slices"

// paired marks a copy that has left its worker, and for which another one starts: a move.
const paired flag = 1 << 4

// diff lists the changes.
func (p *Planner) diff() {
	s, plan := &p.state, &p.plan
	plan.Changes, plan.Adds, plan.Moves = plan.Changes[:0], s.added, 0
	plan.Changes = slices.Grow(plan.Changes, s.added)
	for i := range s.fresh {
		f := &s.fresh[i]
		if f.worker == None {
			continue
		}
		c := Change{Task: f.task, From: None, To: f.worker, Reason: Missing}
		if h := s.pairOf(f.task, f.worker); h != nil {
			s.flags[h.copy] |= paired
			c.From = h.worker
			plan.Moves++
		}
		plan.Changes = append(plan.Changes, c)
	}
	if plan.Moves > 0 {
		p.explain()
	}
	for w, list := range s.Running {
		at := &s.workers[w]
		if at.lost == 0 && int(at.load-at.got) == len(list) {
			continue
		}
		for k, t := range list {
			c := at.offset + int32(k)
			if s.flags[c]&(gone|repeated|paired) != gone {
				continue
			}
			reason := Surplus
			if s.Want[t] == 0 {
				reason = Unexpected
			}
			plan.Changes = append(plan.Changes, Change{Task: t, From: int32(w), To: None, Reason: reason})
		}
	}
}

// pairOf returns a copy of t that has left its worker, for one that starts on w: if there is one, a copy in the
// zone of w, or else one on a draining worker. So the moves of a task never wait for each other's room in a circle
// of zones.
func (s *state) pairOf(t, w int32) (pair *holder) {
	best := -1
	for i := s.trails[t].left; i > 0; i = s.left[i-1].next {
		h, rank := &s.left[i-1], 0
		if s.flags[h.copy]&(gone|paired) != gone {
			continue
		}
		if s.States[h.worker] == Draining {
			rank = 1
		}
		if s.zoned && s.zone(h.worker) == s.zone(w) {
			rank += 2
		}
		if rank > best {
			pair, best = h, rank
		}
	}
	return pair
}

// explain sets the reasons of the moves.
func (p *Planner) explain() {
	s := &p.state
	p.over = sized(p.over, len(s.workers)) // by worker: by how much it was above its limit
	for w := range s.workers {
		at := &s.workers[w]
		p.over[w] = at.load - at.got - at.room
	}
	for _, c := range p.plan.Changes {
		if c.From != None {
			p.over[c.From]++
		}
	}
	for i := range p.plan.Changes {
		c := &p.plan.Changes[i]
		if c.From == None {
			continue
		}
		switch {
		case s.States[c.From] == Draining:
			c.Reason = Drain
		case !s.admitsClass(c.Task, s.workers[c.From].hub):
			c.Reason = EvictLabel
		case s.zoned && s.wasCrowded(c.Task, s.zone(c.From)):
			c.Reason = EvictZone
		case p.over[c.From] > 0:
			c.Reason = EvictLimit
		case p.still:
			c.Reason = Room
		default:
			c.Reason = Rebalance
		}
		p.over[c.From]--
	}
}

// wasCrowded reports whether more copies of t run in a zone than may.
func (s *state) wasCrowded(t, zone int32) bool {
	n := s.inZone[int(t)*s.zones+int(zone)]
	for i := s.trails[t].left; i > 0; i = s.left[i-1].next {
		if h := &s.left[i-1]; s.flags[h.copy]&paired != 0 && s.zone(h.worker) == zone {
			n++
		}
	}
	for i := s.trails[t].fresh; i > 0; i = s.fresh[i-1].nextOf {
		if s.zone(s.fresh[i-1].worker) == zone {
			n--
		}
	}
	return n > s.zoneCap[t]
}

// listUnplaced lists the copies without a place.
func (p *Planner) listUnplaced() {
	s, list := &p.state, p.plan.Unplaced[:0]
	for i := range p.keeping.items {
		if p.missing() == 0 {
			break
		}
		if x := &p.keeping.items[i]; x.from == None && x.copy == noRef {
			list = append(list, Unplaced{Task: x.task, Copies: 1, Worker: None})
		}
	}
	slices.SortFunc(list, func(a, b Unplaced) int { return int(a.Task - b.Task) })
	merged := list[:0]
	for _, u := range list {
		if n := len(merged); n > 0 && merged[n-1].Task == u.Task {
			merged[n-1].Copies++
			continue
		}
		merged = append(merged, u)
	}
	for i := range merged {
		u := &merged[i]
		if s.counts != nil { // of more copies than workers, not all are items
			u.Copies += max(0, p.keeping.target[u.Task]-s.copies(u.Task)-s.open-1)
		}
		u.Reason = p.why(u.Task)
	}
	p.plan.Unplaced = p.listStaying(merged)
}

// listStaying adds the copies that stay on draining workers, and those that a rule would evict. A
// default cap evicts nothing that has no other place.
func (p *Planner) listStaying(list []Unplaced) []Unplaced {
	s, reasons := &p.state, map[int32]UnplacedReason(nil) // by task
	for w := range s.workers {
		at := &s.workers[w]
		drains := at.state == Draining
		if !drains && !p.keeping.evicts || at.state == Frozen {
			continue
		}
		for k, t := range s.Running[w] {
			switch c := at.offset + int32(k); {
			case drains && s.flags[c] == pinned:
				list = append(list, Unplaced{Task: t, Copies: 1, Worker: int32(w), Reason: CopyPinned})
			case s.stays(c) && (drains || !s.admitsClass(t, at.hub) || s.capRule(t) != 0 && s.inZone[int(t)*s.zones+int(at.zone)] > s.zoneCap[t]):
				reason, known := reasons[t]
				if !known {
					if reasons == nil {
						reasons = make(map[int32]UnplacedReason)
					}
					reason = p.why(t)
					reasons[t] = reason
				}
				list = append(list, Unplaced{Task: t, Copies: 1, Worker: int32(w), Reason: reason})
			}
		}
	}
	return list
}

// why returns why a copy of t has no place.
func (p *Planner) why(t int32) UnplacedReason {
	s, reason := &p.state, NoOpenWorker
	for w := range s.workers {
		at := &s.workers[w]
		switch {
		case at.state != Open:
		case s.runs(t, int32(w)):
			if reason == NoOpenWorker {
				reason = NoOtherWorker
			}
		case !at.hasRoom() || !s.admits(t, at.hub, None):
			return NoPlaceByRules
		default:
			reason = NoAllowedWorker
		}
	}
	return reason
}
