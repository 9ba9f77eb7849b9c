// Package kubernetes is a table of replicas in Leases of Kubernetes, tested with version 1.34. Replicas
// in pods need nothing else: no database, no port and no NetworkPolicy. The package needs net/http and
// no library of Kubernetes.
//
//	err := replica.Run(ctx, kubernetes.InCluster("pollers"), replica.Names("acme", "initech"), poll)
//
// Outside of a cluster, run kubectl proxy, which has the credentials of kubectl:
//
//	table := kubernetes.New(kubernetes.Config{URL: "http://127.0.0.1:8001", Namespace: "shop"}, "pollers")
//
// [Kubeconfig] reads a kubeconfig in JSON instead, which kubectl writes. The usual one is in YAML, for
// which this package has no parser.
//
// # What a service account needs
//
// This Role in the namespace of the pods, and a RoleBinding of their service account:
//
//	apiVersion: rbac.authorization.k8s.io/v1
//	kind: Role
//	metadata: {name: pollers, namespace: shop}
//	rules:
//	- apiGroups: [coordination.k8s.io]
//	  resources: [leases]
//	  verbs: [get, list, watch, create, update, delete]
//
// Who may write these Leases may command every replica. A verb that is missing is named in the log
// after a third of a lease, because an API server that begins refuses requests until it has loaded its
// Roles. A replica without list, watch or create stays out; one without get or update stops its tasks.
// The token is read from its file for each request, so that a renewed one is used at once.
//
// # In the cluster
//
// kubectl get leases shows the table, and two Leases for each member: its record, with its heartbeat
// and its report, and its orders. The list of tasks has as many as it needs.
//
//	NAME                              HOLDER      AGE
//	pollers                           pod-1       3d
//	pollers-0b54a1f20cc3e7a1          pod-1       3d
//	pollers-0b54a1f20cc3e7a1-orders   12 tasks    3d
//	pollers-a2f1c04be11d7c55          pod-2       3d
//	pollers-a2f1c04be11d7c55-orders   13 tasks    3d
//	pollers-tasks-0                   25 tasks    3d
//
// The table is held by the leader, and its renewTime is that of the leader's last heartbeat. The names
// have IDs of members, and no names of tasks. A name of a table that no label may have, such as one of
// more than 63 characters, is replaced by a hash. A member that has left or was evicted is held by
// "left" or "evicted", until its Leases are deleted: at once, or after a lease. The last one that leaves
// deletes those of all members. The table and the list of tasks stay.
//
// Records are annotations in JSON, with texts as in Go, so that they may have any bytes. The last field
// of each is a sum, by which a change by hand is seen. Requests of operators are in the table.
//
// The annotations of a Lease have 256 KiB. That is 3,700 tasks for a replica if their names have 36
// bytes. An order that needs more is refused, and the rest runs on. A task of the list may have 8 KiB.
//
// # What calls cost
//
// A heartbeat is two requests: the replica writes its record and reads the table, or the leader writes
// it. Heartbeats come every twelfth of the lease, which is 30 seconds by default and ten at least. So
// 100 replicas that do nothing make 80 requests a second. Everything else is told by watches. For new
// orders the leader makes one request for each replica, and each of these makes four. A replica lists
// when it joins and after an election, the leader also every minute.
//
// # How long the API server may be away
//
// Tasks go on for nine tenths of the lease, less the time that they have to stop, after the last
// heartbeat that was answered: 19.5 to 22 seconds by default. After that all tasks stop, and run again
// as soon as the API server answers. So they do if etcd, of which it is a client, is away. Set a longer
// lease with [replica.WithLease] if your control plane is away for longer when it is upgraded.
//
// Answers that a server is too busy (429) and that it does not permit something (401 and 403) are
// waited for; other errors fail a call, which is repeated.
//
// # What may be lost
//
// While etcd keeps what it has acknowledged, everything holds that package replica promises. A Lease
// that is deleted or edited by hand, any of them or all, stops no task: it is written again. If it is
// the table's, View.Server is another one, so that for the longest lease no replica is elected, and no
// task starts. So it is if a Lease has a resourceVersion below one that was seen, because etcd was
// restored from a snapshot. A warning names the reason. If a part of the list of tasks is lost before an
// election, nothing is stopped until a Source has answered.
//
// Not promised: a restored etcd that has caught up before the first call of every replica.
package kubernetes
