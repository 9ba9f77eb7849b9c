// Package memory is a cluster of workers within one process: for tests of what
// is built on the orchestrator, for simulations, and for a first look.
//
// A [Cluster] is made of real workers, one worker.Worker for each name, between
// which and the caller lies a network made of nothing: calls arrive at once,
// until one of the switches disturbs them.
//
//	cluster, err := memory.New[string, string](nil) // tasks that just wait
//	cluster.Start("w1", "w2", "w3")
//	o, err := orchestrator.New(cluster)
//
// # Processes
//
// [Cluster.Start] starts the process of a worker and [Cluster.Kill] ends it:
// its tasks are gone, and it has forgotten everything.
//
// # The network
//
// For each worker one of these holds at a time, until the next or until
// [Cluster.Heal]; it is the network's, so it stays when the worker is killed
// and started.
//
//	             the call                      meets a worker that
//	Cut          fails at once                 is never reached
//	Hang         ends when its context does    is never reached
//	Stick        ends on Heal, Kill or Start   is reached on Heal
//	Slow         takes longer                  is reached later, if the caller waits
//	Late         takes longer                  is reached later, in any case
//	HoldWrites   hangs, if it writes           is reached on release, in any case
//	LoseAnswers  ends when its context does    is reached at once
//
// A call meets the network as it is when it sets out. When the next switch is
// thrown, what was stopped on its way to that worker arrives; what is slow
// takes its time.
//
// # What really happens
//
// [Cluster.Running], [Cluster.RunsOn], [Cluster.Counts] and [Cluster.Events]
// tell what the tasks' functions really do, whatever workers say or callers
// believe. When an Add has been answered without an error, its task's function has
// been called, unless the task is in a queue (worker.WithSlots).
//
// # Time
//
// All waiting is done on channels and timers, none with a lock held, so that
// a Cluster works in a bubble of testing/synctest, where hours pass in no time
// and synctest.Wait waits until everything has come to rest. A Cluster made in
// a bubble stays there, and is closed before the bubble ends.
package memory
