package api

// The handlers of /workers, /healthz and /readyz.

import (
	"context"
	"net/http"
)

func (a *api) listWorkers(w http.ResponseWriter, r *http.Request) {
	type worker struct {
		Name  string   `json:"name"`
		State string   `json:"state"`
		Tasks []string `json:"tasks"`
	}
	answer := struct {
		Workers []worker `json:"workers"`
		Leader  string   `json:"leader"`
		Epoch   uint64   `json:"epoch"`
	}{Workers: []worker{}}
	all, err := a.Cluster.Workers(r.Context())
	if err == nil {
		answer.Leader, answer.Epoch, err = a.Cluster.Leader(r.Context())
	}
	if err != nil {
		a.failed(w, r, err)
		return
	}
	for _, one := range all {
		tasks := one.Tasks
		if tasks == nil {
			tasks = []string{}
		}
		answer.Workers = append(answer.Workers, worker{Name: one.Name, State: one.State, Tasks: tasks})
	}
	a.json(w, r, http.StatusOK, answer)
}

// health says that the process serves, whatever etcd does: who restarts it for
// want of an answer would not bring etcd back.
func (a *api) health(w http.ResponseWriter, _ *http.Request) { ok(w) }

// ready says whether what is behind the API answers just now, whoever leads: who
// balances load sends requests elsewhere for as long as it does not.
func (a *api) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyPatience)
	defer cancel()
	if _, _, err := a.Cluster.Leader(ctx); err != nil {
		a.Logger.Debug("not ready", "err", err) // said again at each request that needs it
		a.unavailable(w, r, "the store does not answer")
		return
	}
	ok(w)
}

func ok(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte("ok\n"))
}
