// Package etcd is a table of replicas in etcd, tested with version 3.7. It keeps every clause of
// [replica.Backend], and these:
//
//   - E3: The [Registry] survives every restart, and a loss of the table.
//
//   - E6: Transactions stay within etcd's default limits, whatever the size of the fleet. A watch
//     that was cut or compacted, or that ends up at another etcd, misses no change.
//
// A replica on it:
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: …})
//	…
//	err = replica.Run(ctx, etcd.New(client, "/pollers/"), replica.Names("acme", "initech"), poll)
//
// [Registry] keeps tasks with content that users change, as a Source. The package has only a client.
// Package embed below it runs a server in the process, for tests and examples.
//
// # In etcd
//
// Everything lies below one prefix, in values that people can read. This is what
// etcdctl get --prefix /pollers/ prints, with shorter numbers:
//
//	/pollers/table           {"format":"replica 1","server":"4JWU…","cluster":"fe68…","confirmed":true,"listed":true,
//	                          "epoch":"1149","leader":"6819","seen":"0","lease_ns":15000000000,"written":5}
//	/pollers/table/members   6819
//	/pollers/epoch           1149
//	/pollers/batch           {"version":"1151","members":1,"tasks":2,"written":4}
//	/pollers/tasks/acme      {"name":"acme","written":1}
//	/pollers/tasks/initech   {"name":"initech","written":1}
//	/pollers/members/6819    {"id":"6819","joined":1,"lease_ns":15000000000,"name":"pod-1",…,"written":4}
//	/pollers/beats/6819      {"heartbeat":"19","epoch":"1149","written":19}
//	/pollers/orders/6819     {"orders":{"acme":{"version":"1151"},"initech":{"version":"1151"}},"written":1}
//	/pollers/reports/6819    {"heartbeat":"2","applied":"1151","written":2}
//	/pollers/removed/4711    {"at":"2026-03-01T12:00:00Z","written":1}
//
// table has the last election, the requests of operators, and the identity of the table. epoch has
// the number of the election once more, for [Table.Guard]. batch has what leaders have written: the
// version of the last batch, how many members have orders, and how many tasks there are. tasks is the
// list in force. Each member has its record, its heartbeat, what it shall run (orders) and what it
// runs (reports). removed has the members that have left or were evicted, for a day. table/members
// names the members that have joined, changed or gone last: it wakes the leader.
//
// Names and texts are escaped as in Go, so they may have any bytes. written is how often the key was
// put since it was created, as etcd counts: a value that was put by hand has another number. Keys of
// other programs, below the prefix too, are left alone; but a prefix that has such keys and no table
// is refused, with an error that wraps replica.ErrForeign. There are no leases of etcd.
//
// Who may write below the prefix may command every replica. With authentication the user needs the
// right to read and write below the prefix, and no other:
//
//	etcdctl role add pollers
//	etcdctl role grant-permission pollers --prefix=true readwrite /pollers/
//	etcdctl user grant-role pollers pollers
//
// If the password is wrong, clientv3.New says so. Other errors of users are one line each, that says
// what to do: a right that is missing, a password that was changed, a full etcd, TLS at one end only.
//
// # What calls cost
//
// A Read is one transaction. So is a heartbeat, also with a report, if nothing has changed that its replica
// has last read of itself and of the table's record. Any other Sync is one that reads and one that writes
// and reads. A heartbeat that meets a change is three. A large batch is written in transactions of at most 100 operations and 1 MiB. Each is guarded
// by the election, the identity of the table and the last batch, and all that is for one member is in one.
// So a leader that is deposed in the middle of a batch writes nothing more, and the next leader finds what
// was written.
//
// The orders of a member are one value, as is its report. A value has at most 1 MiB, which is 14,000
// tasks with names of 36 bytes. A batch that needs more is refused, and the replica leaves out the
// order. The flags --max-request-bytes and --max-txn-ops of etcd must not be lower than by default.
//
// Each call reads a few keys, whatever the number of members. The leader, four candidates and who
// joins read all heartbeats, and the leader reads what has changed in reports, for which etcd looks
// at all of them. Every replica has two watches, which etcd tells of elections, requests of operators,
// its own orders, and members that join and leave.
//
// Replicas write one revision each twelfth of the lease, so etcd must be compacted:
// --auto-compaction-retention=10m. Compaction loses nothing, however short the time.
//
// # How long etcd may be away
//
// Tasks go on for nine tenths of the lease, less the time that they have to stop, after the last
// heartbeat that was answered. Heartbeats come every twelfth of the lease. With the defaults of
// package replica this is 10.2 to 11.5 seconds. After that all tasks stop, and run again as soon as
// etcd answers. An etcd that is full (NOSPACE) takes no heartbeat: it counts as away.
//
// A client whose Config has no DialKeepAliveTime notices late that a connection is cut. Give it one
// of some seconds.
//
// A client logs each call that failed, to stderr: two lines a second while etcd is away. With the Logger
// zap.NewNop() in its Config it does not. The replica logs the error once a minute.
//
// # What may be lost
//
// While etcd keeps what it has acknowledged, everything holds that package replica promises. After a
// loss View.Server is another one, so that for the longest lease no replica is elected, and no task
// starts. Tasks that run go on. The records are deleted and published anew. A warning names the reason.
// Losses that are found:
//
//   - etcd was restored from a snapshot or from a copy of its disk, here or as another cluster, and a
//     replica that lives has seen more
//   - keys were deleted, all or some
//   - a value was put by hand: if it is the table's or the replica's own, with its next call;
//     orders and tasks with the next election, and with the next View that shows all of them
//
// A member of etcd that is killed and comes back, a change of etcd's leader, compaction and
// defragmentation are no losses.
//
// Not promised: an older copy of the disk that has caught up before the first Sync, or, for
// [Registry.Watch], in the same term of etcd's Raft; and values that were put by hand with the right
// number of written.
package etcd
