// Package admin serves what operators need of a replica: probes, metrics and the dashboard.
//
//	r, err := replica.New(table, tenants, poll)
//	…
//	h, err := admin.New(r)
//	…
//	go func() { log.Println(http.ListenAndServe(":8080", h)) }()
//	err = r.Run(ctx)
//
//	/livez       200, or 503 if the process should be restarted (replica.Alive)
//	/readyz      200, or 503 if the replica holds no lease (replica.Ready)
//	/metrics     for Prometheus: the replica, the terms while it leads, and all that the program
//	             has registered with prometheus.DefaultRegisterer: do not register these there
//	/dashboard/  pages, and the JSON API that orchctl uses
//
// It works on every replica. One that does not lead shows the workers, their tasks with their
// states and errors, and what is missing, from the table. The leader adds what it changes and
// why.
//
// The dashboard answers only requests from the same machine, such as those of kubectl
// port-forward, unless an option allows others: dashboard.WithToken or dashboard.WithAuthorize.
// Probes and metrics answer every request.
package admin
