package stats

// A histogram with the buckets of orchestrator.DurationBounds.

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f8949c05/orchestrator"
)

// histogram is orchestrator.Durations over the life of a process. Its sum is in
// seconds as a float, because concurrent calls together can exceed a time.Duration.
type histogram struct {
	count   uint64
	sum     float64
	buckets [len(orchestrator.Durations{}.Buckets)]uint64 // not cumulative
}

func (h *histogram) observe(took time.Duration) {
	h.count++
	h.sum += took.Seconds()
	for i, bound := range orchestrator.DurationBounds() {
		if took <= bound {
			h.buckets[i]++
			return
		}
	}
}

func (h *histogram) add(d *orchestrator.Durations) {
	h.count += d.Count
	h.sum += d.Sum.Seconds()
	for i, n := range d.Buckets {
		h.buckets[i] += n
	}
}

// metric returns the histogram for Prometheus, with cumulative buckets.
func (h histogram) metric(desc *prometheus.Desc, label string) prometheus.Metric {
	cumulative := make(map[float64]uint64, len(h.buckets))
	var n uint64
	for i, bound := range orchestrator.DurationBounds() {
		n += h.buckets[i]
		cumulative[bound.Seconds()] = n
	}
	return prometheus.MustNewConstHistogram(desc, h.count, h.sum, cumulative, label)
}
