package stats

// Tables of metrics, which every collector of this package has, and how a scrape reads them.

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metric is a metric of a source. It is a counter if its name ends with _total.
type metric[S any] struct {
	name, help string
	labels     []string
	values     func(s S, to *scrape)
}

// scrape receives the values of a metric.
type scrape struct {
	name string
	desc *prometheus.Desc
	kind prometheus.ValueType
	all  []prometheus.Metric // of all metrics up to now
}

func (x *scrape) put(v float64, labels ...string) {
	x.all = append(x.all, prometheus.MustNewConstMetric(x.desc, x.kind, v, labels...))
}

// one returns the values of a metric without labels.
func one[S any, N int | int64 | uint64 | float64](of func(S) N) func(S, *scrape) {
	return func(s S, to *scrape) { to.put(float64(of(s))) }
}

// table is metrics of a source with their descriptions.
type table[S any] struct {
	metrics []metric[S]
	descs   []*prometheus.Desc
}

// newTable returns a table of metrics. Their names begin with a prefix.
func newTable[S any](prefix string, opts []Option, metrics ...metric[S]) table[S] {
	t := table[S]{metrics: metrics}
	for _, m := range metrics {
		t.descs = append(t.descs, prometheus.NewDesc(prefix+m.name, m.help, m.labels, labelsOf(opts)))
	}
	return t
}

// values returns the values of all metrics.
func (t *table[S]) values(s S) []prometheus.Metric {
	var x scrape
	for i, m := range t.metrics {
		x.name, x.desc, x.kind = m.name, t.descs[i], prometheus.GaugeValue
		if strings.HasSuffix(m.name, "_total") {
			x.kind = prometheus.CounterValue
		}
		m.values(s, &x)
	}
	return x.all
}

// Describe implements [prometheus.Collector].
func (t *table[S]) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range t.descs {
		ch <- d
	}
}

// reader is a collector that reads its source at each scrape, so that there is no second count.
type reader[S any] struct {
	table[S]
	read func() S
}

// Collect implements [prometheus.Collector].
func (r *reader[S]) Collect(ch chan<- prometheus.Metric) {
	for _, m := range r.values(r.read()) {
		ch <- m
	}
}

// register registers a collector.
func register[C prometheus.Collector](reg prometheus.Registerer, doing string, c C) (none C, err error) {
	if reg == nil {
		return none, errors.New(doing + ": the Registerer is nil")
	}
	err = reg.Register(c)
	if _, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		return none, fmt.Errorf("%s: labels already in use, add WithConstLabels: %w", doing, err)
	}
	if err != nil {
		return none, fmt.Errorf("%s: %w", doing, err)
	}
	return c, nil
}

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// age returns how long ago a time was, in seconds; 0 if it is zero.
func age(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return time.Since(t).Seconds()
}
