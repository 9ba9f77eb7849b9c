package dashboard

import "github.com/f8949c05/orchestrator/dashboard/api"

// taskList returns the tasks that the query selects.
func (v *view[W, T]) taskList(q *query) (api.Tasks, *api.Error) {
	return api.Tasks{Header: v.header(), Tasks: []api.Task{}}, q.err
}

// task returns one task.
func (v *view[W, T]) task(q *query) (api.TaskDetail, *api.Error) {
	return api.TaskDetail{Header: v.header()}, q.err
}
