// Package memory is a cluster of workers within one process, for tests of code that
// uses the orchestrator, for simulations, and for first steps.
//
// A [Cluster] consists of real workers, one worker.Worker for each name, and a
// simulated network between them and the caller. Calls arrive immediately unless a
// switch disturbs them.
//
//	cluster, err := memory.New[string, string](nil) // tasks that only wait
//	cluster.Start("w1", "w2", "w3")
//	o, err := orchestrator.New(cluster)
//
// # Processes
//
// [Cluster.Start] starts the process of a worker. [Cluster.Kill] ends it: its tasks
// and all its state are lost. Names have no incarnations: a call reaches the process that
// has the name now. So call RemoveWorker and AddWorker of the orchestrator as well.
//
// # The network
//
// Each worker has one switch setting at a time. It lasts until the next switch or
// [Cluster.Heal]. The setting belongs to the network, so it survives the end and the
// start of the worker's process.
//
//	             the call                      reaches the worker
//	Cut          fails at once                 never
//	Hang         ends when its context does    never
//	Stick        ends on Heal, Kill or Start   on Heal
//	Slow         takes longer                  later, if the caller still waits
//	Late         takes longer                  later, in any case
//	HoldWrites   hangs, if it writes           on release, in any case
//	LoseAnswers  ends when its context does    at once
//
// A call is subject to the setting at the time it is made. When the setting changes,
// calls that were held on their way to that worker arrive. Slow and late calls still
// take their time.
//
// # What runs
//
// [Cluster.Running], [Cluster.RunsOn], [Cluster.Counts] and [Cluster.Events] report
// what the tasks' functions do, independently of what workers report or callers
// believe. When an Add has returned nil, the function of its task has been called,
// unless the task is in a queue (worker.WithSlots).
//
// # Time
//
// A Cluster waits only on channels and timers, and never while it holds a lock. So
// it works in a bubble of testing/synctest, where hours pass in no time and
// synctest.Wait waits until all goroutines are blocked. A Cluster made in a bubble
// must stay there, and must be closed before the bubble ends.
package memory
