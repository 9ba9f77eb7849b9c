// Package etcd is for users whose leader must survive its machine: an election,
// the registry of tasks, the membership of workers and the way to them, each
// usable alone, on a real etcd.
package etcd
