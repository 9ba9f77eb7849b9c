package standing

import "slices"

// Suspects returns, in order, the tasks that failed on more than one worker, and
// on one at least that was not to blame. Room for these is not worth making:
// they would probably fail again. O(pairs · log(pairs)).
func (b *Book) Suspects() []int32 {
	var tasks []int32
	for _, ofWorker := range b.pairs {
		for task, r := range ofWorker {
			if !r.blamed && b.byTask[task] > 1 {
				tasks = append(tasks, task)
			}
		}
	}
	slices.Sort(tasks)
	return slices.Compact(tasks)
}
