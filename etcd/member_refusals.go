package etcd

import "slices"

// keptRefusals is the maximum number of refusals that a member keeps at etcd. Each
// is for the leader's call that waits for it, and for human readers. If a leader
// misses one, its call reports the task as unclaimed, which is also a refusal.
const keptRefusals = 128

// refusals holds the tasks that a membership has refused and not claimed since, the
// oldest first. The zero value is empty. A membership begins with it, because the
// refusals of earlier ones ended with their leases.
type refusals struct{ tasks []string }

// refuses reports whether an entry writes a refusal.
func (e entry) refuses() bool { return e.reason != nil && (e.kind == doRefuse || e.kind == doLeave) }

// cost returns the number of deletions that an entry may need.
func (r *refusals) cost(e entry) int {
	if e.refuses() || e.kind == doClaim && slices.Contains(r.tasks, e.task) {
		return 1
	}
	return 0
}

// note records entries, no two of which concern the same task. It returns the tasks
// whose refusals must be deleted with them: those that are claimed, and the oldest
// beyond keptRefusals. The result contains no task that one of the entries refuses.
func (r *refusals) note(entries []entry) (gone []string) {
	for _, e := range entries {
		if !e.refuses() && e.kind != doClaim {
			continue
		}
		i := slices.Index(r.tasks, e.task)
		if i >= 0 {
			r.tasks = slices.Delete(r.tasks, i, i+1)
		}
		switch {
		case e.refuses():
			r.tasks = append(r.tasks, e.task)
		case i >= 0:
			gone = append(gone, e.task)
		}
	}
	excess := max(len(r.tasks)-keptRefusals, 0)
	gone = append(gone, r.tasks[:excess]...)
	r.tasks = slices.Delete(r.tasks, 0, excess)
	return gone
}
