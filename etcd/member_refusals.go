package etcd

// Which refusals of a member are at etcd.

import "slices"

// keptRefusals is how many refusals a member leaves at etcd. Each is for the
// call of the leader that is waiting for it, and for people: a leader that falls
// behind by more is told that nobody has claimed the task, which is refused all
// the same.
const keptRefusals = 128

// refusals are the tasks that a membership has refused, the oldest first, and
// not claimed since. The zero value is that of one that has refused nothing, as
// every membership begins: what an earlier one has refused ended with its lease.
type refusals struct{ tasks []string }

// refuses reports whether an entry leaves a refusal.
func (e entry) refuses() bool { return e.reason != nil && (e.kind == doRefuse || e.kind == doLeave) }

// cost returns how many deletions an entry can make necessary.
func (r *refusals) cost(e entry) int {
	if e.refuses() || e.kind == doClaim && slices.Contains(r.tasks, e.task) {
		return 1
	}
	return 0
}

// note takes in entries, no two of which are of the same task, and returns the
// tasks whose refusals are to be deleted with them: those that are claimed, and
// the oldest of too many. None of them is refused by one of the entries.
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
