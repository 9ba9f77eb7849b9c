// Package boltrecord stores a worker's record in a small file. After a crash, the
// next process reads from it which tasks ran and which had completed.
//
//	record, err := boltrecord.Open("/var/lib/service/worker.db")
//	…
//	w, err := worker.New(run, worker.WithRecord(record))
//	…
//	for _, trace := range w.Before() {
//		log.Info("ran before the crash", "task", trace.Task, "completed", trace.Completed)
//	}
//
// The file is a bbolt database with one bucket. Its keys are the names of tasks and
// its values are JSON. The package supports workers whose tasks are strings, as in
// package etcd. A damaged file is an error, [ErrDamaged]: delete it.
//
// The package is a separate module, so that only programs that use it require and
// link bbolt.
package boltrecord
