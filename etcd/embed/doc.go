// Package embed runs a real etcd server, one node, in the process: for tests,
// for examples, and for whoever wants no second program to operate.
//
// It is a package of its own because it links some sixty modules. Who only
// talks to etcd imports package etcd, and links none of them.
package embed
