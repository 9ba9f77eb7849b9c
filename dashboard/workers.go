package dashboard

import "github.com/f8949c05/orchestrator/dashboard/api"

// workerList returns the workers that the query selects.
func (v *view[W, T]) workerList(q *query) (api.Workers, *api.Error) {
	return api.Workers{Header: v.header(), Workers: []api.Worker{}}, q.err
}

// worker returns one worker.
func (v *view[W, T]) worker(q *query) (api.WorkerDetail, *api.Error) {
	return api.WorkerDetail{Header: v.header()}, q.err
}
