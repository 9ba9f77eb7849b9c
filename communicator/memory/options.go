package memory

// The options of New.

import "github.com/f8949c05/orchestrator/worker"

// Option changes how [New] sets up a Cluster.
type Option interface {
	apply(*config)
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

type config struct {
	readiness bool
	worker    []worker.Option
}

// WithWorkerOptions has every worker made with the options given, in addition
// to those of an earlier WithWorkerOptions. [New] returns what is wrong with
// them. A function given to worker.WithCompletion is called for the tasks of
// every worker.
//
// Default: none.
func WithWorkerOptions(opts ...worker.Option) Option {
	return optionFunc(func(c *config) { c.worker = append(c.worker, opts...) })
}

// WithReadiness leaves it to the function that runs the tasks to call
// worker.Ready. Until then the Add that started a task does not answer.
//
// Default: a task is ready once it runs.
func WithReadiness() Option {
	return optionFunc(func(c *config) { c.readiness = true })
}
