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

// WithWorkerOptions adds options for every worker, after those of earlier uses.
// [New] returns their errors. A function given to worker.WithCompletion is called
// for the tasks of every worker.
//
// Default: none.
func WithWorkerOptions(opts ...worker.Option) Option {
	return optionFunc(func(c *config) { c.worker = append(c.worker, opts...) })
}

// WithReadiness makes the function that runs the tasks responsible for calling
// worker.Ready. The Add that started a task does not return before.
//
// Default: a task is ready once it runs.
func WithReadiness() Option {
	return optionFunc(func(c *config) { c.readiness = true })
}
