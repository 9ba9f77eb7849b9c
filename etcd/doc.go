// Package etcd is for users whose leader must survive its machine: an election,
// the registry of tasks, the membership of workers and the way to them, each
// usable alone, on a real etcd.
//
// # Keys
//
// Everything lies under one prefix, [WithPrefix], and can be read with etcdctl.
// Names are escaped as in URLs, so that they may hold any bytes:
//
//	format                      what the prefix is used by
//	registry/<task>             the content of a task, as it was given
//	tasks/<task>                its settings as JSON; absent: the default
//	members/<worker>            a worker that is there, under its lease
//	workers/<worker>            how many tasks it has, under its lease
//	assigned/<worker>/<task>    what the leader wants there, under the worker's lease
//	active/<worker>/<task>      what the worker has claimed, under its lease
//	refused/<worker>/<task>     why it did not, under its lease
//	drains/<worker>             that it is to end empty
//	term                        the number of the last term
//	leader/<lease>              the candidates, the oldest of which leads
//
// # The client
//
// All of this works on a client of the user's. Have it look after its
// connection, with DialKeepAliveTime and DialKeepAliveTimeout of some seconds:
// without them a client whose peer has vanished silently waits on that connection
// until the kernel gives up, which takes a quarter of an hour, and never tries
// another endpoint. Nothing is unsafe meanwhile, since leases end by the clock,
// but nothing happens either.
//
// TLS, users and passwords are the client's too. The right to read and write the
// prefix is all that is needed.
//
// Package embed, beneath this one, runs a server in the process.
package etcd
