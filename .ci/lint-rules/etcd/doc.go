// Package etcd stands for its floor.
package etcd
