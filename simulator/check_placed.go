package simulator

// The end of a run with rules of placement: all that has a place must run, and copies must
// have left the places where they may not be.

import (
	"math"
	"slices"

	"github.com/f8949c05/orchestrator"
)

// checkPlaced compares what runs with what is wanted and has a place.
func (ft *finalTerms) checkPlaced() {
	w := ft.w
	placed, suspects := 0, ft.suspects()
	for _, name := range w.taskNames() {
		want, runs := w.tasks[name].Instances, w.cluster.Running(name)
		if len(runs) > want {
			ft.fail("%s runs on %v; wanted: %d", name, runs, want)
		}
		if placed += len(runs); suspects[name] {
			placed += max(0, want-len(runs))
		}
	}
	for _, name := range w.members {
		for _, task := range w.cluster.RunsOn(name) {
			if _, expected := w.tasks[task]; !expected {
				ft.fail("%s runs %s, which is not expected", name, task)
			}
		}
	}
	if w.maxMoves == 0 {
		ft.checkDirect()
		return
	}
	if most := ft.mostPlaced(); placed < most {
		ft.fail("%d instances run, and %d have a place: %v", placed, most, ft.l.o.LastPlan().Waiting)
	}
	ft.checkDirect()
	ft.checkLeft(suspects)
	ft.checkEven(suspects)
}

// suspects returns the tasks for which no other task makes room, because they failed to start
// on more than one worker.
func (ft *finalTerms) suspects() map[string]bool {
	tasks := make(map[string]bool)
	for _, p := range ft.l.o.LastPlan().Paused {
		if p.Kind == orchestrator.PauseTask {
			tasks[p.Task] = true
		}
	}
	return tasks
}

// takesTasks reports whether a worker takes tasks at the end of a run.
func (ft *finalTerms) takesTasks(m *member) bool { return m.registered && m.alive && !m.draining }

// admits reports whether a worker may gain a task that another one gives up, or that is
// missing if from is "".
func (ft *finalTerms) admits(m *member, task, from string) bool {
	w := ft.w
	def, runs := w.tasks[task], w.cluster.Running(task)
	switch {
	case !ft.takesTasks(m) || slices.Contains(runs, m.name) || lacking(&m.settings, def.Requires) != "":
		return false
	case m.settings.MaxTasks > 0 && len(w.cluster.RunsOn(m.name)) >= m.settings.MaxTasks:
		return false
	case def.MaxPerZone <= 0:
		return true
	}
	copies := 0
	for _, name := range runs {
		if name != from && w.workers[name].settings.Zone == m.settings.Zone {
			copies++
		}
	}
	return copies < def.MaxPerZone
}

// checkDirect checks that no instance is missing that a worker could take as things are.
func (ft *finalTerms) checkDirect() {
	w := ft.w
	for _, task := range w.taskNames() {
		if len(w.cluster.Running(task)) >= w.tasks[task].Instances {
			continue
		}
		for _, name := range w.members {
			if ft.admits(w.workers[name], task, "") {
				ft.fail("%s runs on %v; wanted: %d, and %s could take it", task, w.cluster.Running(task), w.tasks[task].Instances, name)
			}
		}
	}
}

// checkLeft checks that each copy has left its worker that should and could.
func (ft *finalTerms) checkLeft(suspects map[string]bool) {
	w := ft.w
	for _, name := range w.members {
		m := w.workers[name]
		if !m.alive {
			continue
		}
		tasks := w.cluster.RunsOn(name)
		for _, task := range tasks {
			why := ""
			switch def := w.tasks[task]; {
			case suspects[task]:
				continue
			case m.draining:
				why = "it drains"
			case lacking(&m.settings, def.Requires) != "":
				why = "it lacks a label"
			case m.settings.MaxTasks > 0 && len(tasks) > m.settings.MaxTasks:
				why = "it has too many tasks"
			case def.MaxPerZone > 0 && ft.inZone(task, m.settings.Zone) > def.MaxPerZone:
				why = "its zone has too many copies"
			default:
				continue
			}
			for _, other := range w.members {
				to := w.workers[other]
				inside := to.settings.Zone == m.settings.Zone
				if why == "its zone has too many copies" && inside || why == "it has too many tasks" && !inside {
					continue // the spread over zones outranks a limit
				}
				if ft.admits(to, task, name) {
					ft.fail("%s still runs %s, though %s, and %s could take it", name, task, why, other)
				}
			}
		}
	}
}

// inZone counts the copies of a task in a zone.
func (ft *finalTerms) inZone(task, zone string) int {
	n := 0
	for _, name := range ft.w.cluster.Running(task) {
		if ft.w.workers[name].settings.Zone == zone {
			n++
		}
	}
	return n
}

// checkEven checks that no single move of a task with one instance makes the workers more
// even. Zones are chosen first, so it looks only inside them if zones may bind.
func (ft *finalTerms) checkEven(suspects map[string]bool) {
	w := ft.w
	for _, name := range w.members {
		from := w.workers[name]
		if !ft.takesTasks(from) {
			continue
		}
		tasks := w.cluster.RunsOn(name)
		for _, other := range w.members {
			to := w.workers[other]
			if w.rules.zones > 0 && from.settings.Zone != to.settings.Zone {
				continue
			}
			shareFrom, shareTo := max(from.settings.Share, 1), max(to.settings.Share, 1)
			if (2*len(tasks)-1)*shareTo <= (2*len(w.cluster.RunsOn(other))+1)*shareFrom {
				continue
			}
			for _, task := range tasks {
				if w.tasks[task].Instances == 1 && !suspects[task] && ft.admits(to, task, name) {
					ft.fail("%s with share %d runs %d tasks, and %s with share %d runs %d, though %s could move",
						name, shareFrom, len(tasks), other, shareTo, len(w.cluster.RunsOn(other)), task)
				}
			}
		}
	}
}

// waitsForEvictions reports whether changed labels would evict too much. It waits until they
// may.
func (ft *finalTerms) waitsForEvictions() bool {
	held := slices.ContainsFunc(ft.l.o.LastPlan().Waiting, func(p orchestrator.Waiting[string, string]) bool {
		return p.Reason == orchestrator.ReasonEvictionHeld
	})
	if !held {
		return false
	}
	if ft.waitedForEvictions++; ft.waitedForEvictions > 4 {
		ft.fail("evictions have been held for %d terms, %v apart", ft.waitedForEvictions, evictionsHeldFor)
	}
	ft.w.advance(nil, evictionsHeldFor)
	return true
}

// mostPlaced returns the largest number of instances that open workers could run together,
// by augmenting paths from tasks over zones to workers.
func (ft *finalTerms) mostPlaced() int {
	w := ft.w
	var f flow
	source, sink := f.node(), f.node()
	workers := make(map[string]int)
	for _, name := range w.members {
		if m := w.workers[name]; ft.takesTasks(m) {
			room := math.MaxInt32
			if m.settings.MaxTasks > 0 {
				room = m.settings.MaxTasks
			}
			workers[name] = f.node()
			f.add(workers[name], sink, room)
		}
	}
	for _, task := range w.taskNames() {
		def := w.tasks[task]
		t, zones := f.node(), make(map[string]int)
		f.add(source, t, def.Instances)
		for _, name := range w.members {
			at, open := workers[name]
			m := w.workers[name]
			if !open || lacking(&m.settings, def.Requires) != "" {
				continue
			}
			z, known := zones[m.settings.Zone]
			if !known {
				z = f.node()
				zones[m.settings.Zone] = z
				room := math.MaxInt32
				if def.MaxPerZone > 0 {
					room = def.MaxPerZone
				}
				f.add(t, z, room)
			}
			f.add(z, at, 1)
		}
	}
	return f.most(source, sink)
}

// flow is a network of arcs with capacities.
type flow struct {
	arcs []arc
	out  [][]int // by node: arcs; an arc's reverse is the arc with the other last bit
	seen []bool
}

type arc struct{ to, left int }

func (f *flow) node() int {
	f.out = append(f.out, nil)
	return len(f.out) - 1
}

func (f *flow) add(from, to, room int) {
	f.out[from] = append(f.out[from], len(f.arcs))
	f.out[to] = append(f.out[to], len(f.arcs)+1)
	f.arcs = append(f.arcs, arc{to, room}, arc{from, 0})
}

// most returns the largest flow.
func (f *flow) most(source, sink int) (n int) {
	for f.seen = make([]bool, len(f.out)); f.augment(source, sink); n++ {
		clear(f.seen)
	}
	return n
}

func (f *flow) augment(at, sink int) bool {
	if at == sink {
		return true
	}
	f.seen[at] = true
	for _, a := range f.out[at] {
		if to := f.arcs[a].to; f.arcs[a].left > 0 && !f.seen[to] && f.augment(to, sink) {
			f.arcs[a].left--
			f.arcs[a^1].left++
			return true
		}
	}
	return false
}
