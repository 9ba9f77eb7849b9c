// Package boltstore keeps the data of a manager in a file. A manager that was
// restarted or killed still has its tasks, completions and members.
//
//	store, err := boltstore.Open("/var/lib/service/manager.db")
//	…
//	defer store.Close()
//	m, err := grpc.NewManager(store)
//	…
//	err = m.Run(ctx, listener)
//
// The file is a bbolt database with one bucket. Its keys are task/NAME, done/NAME,
// failed/NAME, member/NAME, drain/NAME, epoch, revision and key; the value of key is
// a secret. The file is somewhat larger than the contents, which are also held in
// memory. To copy the file, stop the manager. A damaged file is an error,
// [ErrDamaged], whose documentation describes the recovery. An empty file is a new
// store.
//
// If the file is replaced by an older copy, the manager's epoch runs back. Workers
// that have followed a later epoch refuse the manager, and its Run ends with
// orchestrator.ErrDeposed when two of them have. Each start takes the next epoch, so
// start the manager as many times as it was started since the copy was made.
//
// The package is separate so that only managers that use it link bbolt.
package boltstore
