// Package replicatest tests a backend of package replica on its real store.
//
// A test of the backend calls [Run] with a function that makes a new table. Each subtest
// is named after the clause of [replica.Backend] that it tests.
package replicatest
