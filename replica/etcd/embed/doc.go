// Package embed runs a real etcd server with one node in the process. It is for
// tests, for examples, and for users who do not want to operate a second program.
//
// Other machines reach only its client port (E2). A server that cannot continue, for example
// because its disk is full, reports the error before the process ends.
//
// It is a separate package because it links some sixty modules. Programs that only
// connect to etcd import package replica/etcd, which links none of them.
package embed
