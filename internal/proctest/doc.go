// Package proctest tests with real processes. It starts the test's own binary again in
// another role, and kills, stops and continues it. Each process writes what it runs
// to one shared journal. The journal is then checked for tasks that ran in two
// places at once.
package proctest
