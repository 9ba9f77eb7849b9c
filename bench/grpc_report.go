package main

// The part of the report about gRPC, and its goals.

import (
	"fmt"
	"strings"
	"time"
)

// What the figures over gRPC are held against.
const (
	grpcSteadyGoal  = 150 * time.Millisecond
	grpcPayloadGoal = 100 // bytes for each worker and term, both ways
	grpcGrowthGoal  = 1.1 // of these, for a hundred times the tasks: numbers get longer
)

// partOverGRPC is the part about gRPC, whose goals are told from the others by
// what they begin with.
var partOverGRPC = part{head: "## Over gRPC", goal: "over gRPC, "}

// payload returns how many bytes of messages went to and from each worker in a
// term.
func (s steadyTerms) payload() float64 {
	return s.each(func(i int) float64 { return float64(s.bytes[i].payload) / float64(s.workers) })
}

// each returns the median of a figure of each term.
func (s steadyTerms) each(figure func(term int) float64) float64 {
	figures := make([]float64, len(s.took))
	for i := range figures {
		figures[i] = figure(i)
	}
	return middle(figures)
}

func (r overGRPC) goals() []goal {
	at, least, most := r.steady[0], r.steady[0], r.steady[0]
	for _, s := range r.steady {
		if s.tasks < least.tasks {
			least = s
		}
		if s.tasks > most.tasks {
			most = s
		}
	}
	took := at.took.median()
	return []goal{
		{
			partOverGRPC.goal + r.String() + ": a steady term, both ends of each connection on this machine",
			millis(took) + " ms", "under " + decimal(float64(grpcSteadyGoal.Milliseconds())) + " ms", took < grpcSteadyGoal,
		},
		{
			partOverGRPC.goal + "the same: payload for each worker in a steady term, both ways",
			decimal(at.payload()) + " bytes", fmt.Sprintf("under %d bytes", grpcPayloadGoal), at.payload() < grpcPayloadGoal,
		},
		atMost(fmt.Sprintf("%sthat payload with %s tasks, beside %s", partOverGRPC.goal, thousands(most.tasks), thousands(least.tasks)),
			"× the bytes", grpcGrowthGoal, figure{"", most.payload() / least.payload()}),
	}
}

const grpcHead = `
## Over gRPC

%s, one instance each, contents of %d bytes, plaintext on loopback. All in one process: a manager, whose store is in memory, and members that
each listen on a port of their own; so the two cores have both ends of every connection. Measured at commit %s, %s, in
%s.

`

// grpcFoot takes the numbers of cold starts, of workers that are lost, of terms with
// size and with other numbers of tasks, the interval, the lease, and the slots.
const grpcFoot = `
Medians of %d cold starts, each of a new manager, %d workers lost, and %d steady terms of that size, %d of the others.

- **Until it is known**: in a cold start, that all members have come, at once, been called, and been heard in a term; terms are run meanwhile.
  Where one is lost, that its lease, of %s, has ended, and a term has begun without it: its connections are gone, as if its process
  had ended. **Until all runs** goes on from there. In a cold start it begins with one PutAll of all tasks.
- **The calls** are those of the manager to its workers; **the books** the workers' calls to it: registrations and heartbeats.
  Bytes are counted where connections are accepted, both ways together. Payload is messages, as a stats handler counts them, to which a test
  holds it; the wire has headers, settings, acknowledgements and pings of HTTP/2 beside. The first call of a connection is longer on the wire.
  While a lease runs out there are steady terms, which are in what is counted.
- **Steady terms** are those that the manager runs by itself, %s apart, while heartbeats go on; so allocations are everybody's: of the manager,
  of all workers, of heartbeats meanwhile.
- **The bare calls** are one to each of as many other servers of gRPC with default options, in the same process, %d at a time as in a term. They
  say nothing and are answered with nothing. They are made right after each term, in the pause before the next.
- Each worker runs up to %d tasks at a time; what it has beyond that waits in its list.
`

func (r overGRPC) write(b *strings.Builder, cfg grpcConfig) {
	fmt.Fprintf(b, grpcHead, r.size, contentBytes, r.revision, r.start.UTC().Format(time.DateOnly), r.end.Sub(r.start).Round(time.Second))
	r.events().into(b)
	b.WriteString("\n")
	r.terms().into(b)
	fmt.Fprintf(b, grpcFoot, cfg.colds, cfg.lost, cfg.rounds, cfg.fewer, cfg.lease, cfg.interval, callsAtOnce, slots)
}

func (t table) into(b *strings.Builder) { b.WriteString(t.layout(true)) }

func (r overGRPC) events() table {
	t := table{{"", "cold start", "one lost"}}
	row := func(name string, cell func([]transition) string) { t.row(name, cell(r.cold), cell(r.lost)) }
	duration := func(name string, f func(transition) time.Duration) {
		row(name, func(of []transition) string { return millis(medianOf(of, f)) })
	}
	number := func(name string, f func(transition) int) {
		row(name, func(of []transition) string { return grouped(medianOf(of, f)) })
	}
	duration("ms until it is known", func(e transition) time.Duration { return e.before })
	duration("ms until all runs", func(e transition) time.Duration { return e.took })
	duration("ms the longest term of that", func(e transition) time.Duration { return e.term })
	number("terms of that", func(e transition) int { return e.terms })
	number("starts", func(e transition) int { return e.starts })
	number("calls and their answers, messages", func(e transition) int { return e.calls.messages })
	number("the same, bytes of payload", func(e transition) int { return e.calls.payload })
	number("the same, bytes on the wire", func(e transition) int { return e.calls.wire })
	number("the books, messages", func(e transition) int { return e.books.messages })
	number("the same, bytes of payload", func(e transition) int { return e.books.payload })
	number("the same, bytes on the wire", func(e transition) int { return e.books.wire })
	number("allocations of everybody", func(e transition) int { return e.allocs })
	return t
}

func (r overGRPC) terms() table {
	t := table{{"a steady term"}}
	for _, s := range r.steady {
		t[0] = append(t[0], fmt.Sprintf("%s × %s", thousands(s.tasks), grouped(s.workers)))
	}
	row := func(name string, cell func(steadyTerms) string) {
		cells := []string{name}
		for _, s := range r.steady {
			cells = append(cells, cell(s))
		}
		t.row(cells...)
	}
	perWorker := func(name string, f func(s steadyTerms, term int) int) {
		row(name, func(s steadyTerms) string {
			each := s.each(func(term int) float64 { return float64(f(s, term)) }) / float64(s.workers)
			if each >= 1000 {
				return grouped(int(each))
			}
			return decimal(each)
		})
	}
	row("ms", func(s steadyTerms) string { return millis(s.took.median()) })
	row("ms of that until all lists are there", func(s steadyTerms) string { return millis(s.listing.median()) })
	row("ms of the processors' time, everybody's", func(s steadyTerms) string { return millis(s.cpu.median()) })
	row("ms as many bare calls", func(s steadyTerms) string { return millis(s.floor.median()) })
	row("ms of the processors' time of that", func(s steadyTerms) string { return millis(s.floorCPU.median()) })
	row("× the bare calls", func(s steadyTerms) string { return decimal(ratio(s.took, s.floor)) })
	perWorker("bytes of payload for each worker", func(s steadyTerms, i int) int { return s.bytes[i].payload })
	perWorker("bytes on the wire", func(s steadyTerms, i int) int { return s.bytes[i].wire })
	perWorker("allocations of everybody, for each worker", func(s steadyTerms, i int) int { return s.allocs[i] })
	perWorker("their bytes", func(s steadyTerms, i int) int { return s.allocated[i] })
	perWorker("allocations of a bare call", func(s steadyTerms, i int) int { return s.floorAllocs[i] })
	row("heartbeats of each worker, while time and allocations of everybody were counted", func(s steadyTerms) string {
		return decimal(s.each(func(i int) float64 { return float64(s.meanwhile[i].messages) / 2 / float64(s.workers) }))
	})
	row("payload of heartbeats, bytes for each worker and second", func(s steadyTerms) string {
		return decimal(float64(s.heartbeats.payload) / float64(s.workers) / s.heard.Seconds())
	})
	return t
}
