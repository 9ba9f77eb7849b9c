// Package boltstore keeps what a manager must not forget in a file: a manager
// that was restarted, or killed, knows its tasks, what is completed, and its
// members.
//
//	store, err := boltstore.Open("/var/lib/service/manager.db")
//	…
//	defer store.Close()
//	m, err := grpc.NewManager(store)
//	…
//	err = m.Run(ctx, listener)
//
// The file is a bbolt database with one bucket, whose keys begin with the kind
// and end with the name: task/, done/, member/ and drain/. It is as large as
// the contents and somewhat larger, and is held in memory as well. To copy it,
// stop the manager. One that is damaged is an error, [ErrDamaged], which says what to
// do; an empty file is a new store.
//
// One that is replaced by an older copy has the manager's epoch run back: workers
// that have followed a later one refuse it, and its Run ends with
// orchestrator.ErrDeposed when two of them have. Each start takes the next epoch, so
// start the manager as often again as it was started since the copy was made.
//
// The package is in a folder of its own, so that bbolt is linked only by
// managers that use it.
package boltstore
