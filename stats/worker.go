// The metrics of a worker and of a manager. They are read when Prometheus asks, so
// nothing is counted twice.

package stats

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f8949c05/orchestrator/worker"
)

// RegisterWorker shows how a worker's lease is doing, whatever transport keeps it,
// and registers that with reg. It returns what it has registered, for
// [prometheus.Registerer.Unregister]. Two workers in one process are told apart by
// [WithConstLabels]. A second one with the same labels, a nil reg and a nil w are
// errors.
func RegisterWorker[T comparable](reg prometheus.Registerer, w *worker.Worker[T], opts ...Option) (prometheus.Collector, error) {
	const doing = "stats: register worker"
	if w == nil {
		return nil, errors.New(doing + ": the Worker is nil")
	}
	f := figures{constLabels: optionsOf(opts).constLabels}
	left := f.gauge("worker_lease_left_seconds", "How long the worker goes on without a keepalive; 0 without a lease.")
	sent := f.counter("worker_keepalives_sent_total", "Requests for the worker's lease.")
	acknowledged := f.counter("worker_keepalives_acknowledged_total", "Requests for the worker's lease that were acknowledged.")
	rejoins := f.counter("worker_rejoins_total", "Times the worker has begun anew, after its lease was lost.")
	f.collect = func(emit emitter) {
		s := w.LeaseStats()
		emit(left, s.Left.Seconds())
		emit(sent, float64(s.Sent))
		emit(acknowledged, float64(s.Acknowledged))
		emit(rejoins, float64(s.Rejoins))
	}
	return f.register(reg, doing)
}

// Manager is what [RegisterManager] asks. The Manager of package
// communicator/grpc is one.
//
// # Concurrency
//
// Its methods are called with each scrape, from any goroutine.
//
// # Ownership
//
// The map is the caller's.
type Manager interface {
	// MemberCount returns how many workers are members.
	MemberCount() int
	// RefusedCalls returns how many calls of workers were refused so far, by cause.
	RefusedCalls() map[string]uint64
}

// RegisterManager shows how many members a manager has, and which calls of workers
// it refuses, and registers that with reg. It returns what it has registered. Two
// managers in one process are told apart by [WithConstLabels]. A second one with
// the same labels, a nil reg and a nil m are errors.
func RegisterManager(reg prometheus.Registerer, m Manager, opts ...Option) (prometheus.Collector, error) {
	const doing = "stats: register manager"
	if m == nil {
		return nil, errors.New(doing + ": the Manager is nil")
	}
	f := figures{constLabels: optionsOf(opts).constLabels}
	members := f.gauge("manager_members", "Workers that are members.")
	refused := f.counter("manager_refused_calls_total", "Calls of workers that the manager refused, by cause.", "cause")
	f.collect = func(emit emitter) {
		emit(members, float64(m.MemberCount()))
		for cause, n := range m.RefusedCalls() {
			emit(refused, float64(n), cause)
		}
	}
	return f.register(reg, doing)
}

// figures is a collector of what is read when Prometheus asks.
type figures struct {
	constLabels prometheus.Labels
	all         []figure
	collect     func(emitter)
}

// emitter hands out the value of a figure.
type emitter func(f figure, v float64, labels ...string)

type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func (f *figures) gauge(name, help string, labels ...string) figure {
	return f.add(name, help, prometheus.GaugeValue, labels)
}

func (f *figures) counter(name, help string, labels ...string) figure {
	return f.add(name, help, prometheus.CounterValue, labels)
}

func (f *figures) add(name, help string, kind prometheus.ValueType, labels []string) figure {
	added := figure{prometheus.NewDesc("orchestrator_"+name, help, labels, f.constLabels), kind}
	f.all = append(f.all, added)
	return added
}

// Describe implements [prometheus.Collector].
func (f *figures) Describe(ch chan<- *prometheus.Desc) {
	for _, one := range f.all {
		ch <- one.desc
	}
}

// Collect implements [prometheus.Collector].
func (f *figures) Collect(ch chan<- prometheus.Metric) {
	f.collect(func(one figure, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(one.desc, one.kind, v, labels...)
	})
}

func (f *figures) register(reg prometheus.Registerer, doing string) (prometheus.Collector, error) {
	if reg == nil {
		return nil, errors.New(doing + ": the Registerer is nil")
	}
	err := reg.Register(f)
	if _, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		return nil, fmt.Errorf("%s: there is one with these labels, WithConstLabels tells two apart: %w", doing, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return f, nil
}
