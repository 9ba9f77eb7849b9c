// Package boltrecord keeps what a worker has in a small file, so that the
// process after a crash can tell what ran and what had completed.
//
//	record, err := boltrecord.Open("/var/lib/service/worker.db")
//	…
//	w, err := worker.New(run, worker.WithRecord(record))
//	…
//	for _, trace := range w.Before() {
//		log.Info("ran before the crash", "task", trace.Task, "completed", trace.Completed)
//	}
//
// The file is a bbolt database with one bucket; its keys are the names of tasks
// and its values JSON. It is for workers whose tasks are strings, as etcd's are.
// One that is damaged is an error, [ErrDamaged]: delete it.
//
// The package is a module of its own, so that bbolt is linked, and required,
// only by those who use it.
package boltrecord
