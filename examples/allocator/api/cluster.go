package api

import (
	"context"
	"net/http"
)

func (a *api) listWorkers(w http.ResponseWriter, r *http.Request) {
	var workers []Worker
	var leader string
	var epoch uint64
	keep, err := a.within(r, workersRoom, func(ctx context.Context) (err error) {
		if workers, err = a.Cluster.Workers(ctx); err == nil {
			leader, epoch, err = a.Cluster.Leader(ctx)
		}
		return err
	})
	if err != nil {
		a.failed(w, r, err)
		return
	}
	defer keep(0)
	tasks := 0
	for _, worker := range workers {
		tasks += len(worker.Tasks)
	}
	keep(int64(tasks) * 16) // a string header; the text is held elsewhere

	out := begin(w, http.StatusOK, "application/json")
	out.text(`{"workers":[`)
	for i, worker := range workers {
		if i > 0 {
			out.text(",")
		}
		out.text(`{"name":`)
		out.json(worker.Name)
		out.text(`,"state":`)
		out.json(worker.State)
		out.text(`,"tasks":[`)
		for i, task := range worker.Tasks {
			if i > 0 {
				out.text(",")
			}
			out.json(task)
		}
		out.text("]}")
	}
	out.text(`],"leader":`)
	out.json(leader)
	out.text(`,"epoch":`)
	out.json(epoch)
	out.text("}\n")
	a.end(r, out)
}

// health answers that the process serves, even if etcd does not answer, because
// restarting the process would not bring etcd back.
func (a *api) health(w http.ResponseWriter, _ *http.Request) { ok(w) }

// ready reports whether the store answers, so that a load balancer can avoid this
// process otherwise. Any leader will do.
func (a *api) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyPatience)
	defer cancel()
	if _, _, err := a.Cluster.Leader(ctx); err != nil {
		a.Logger.Debug("not ready", "err", err) // each request that needs the store logs a warning
		a.unavailable(w, r, "the store does not answer")
		return
	}
	ok(w)
}

func (a *api) metrics(w http.ResponseWriter, r *http.Request) {
	keep, err := a.within(r, metricsRoom, func(context.Context) error { return nil })
	if err != nil {
		a.failed(w, r, err)
		return
	}
	defer keep(0)
	a.Metrics.ServeHTTP(w, r)
}

func ok(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte("ok\n"))
}
