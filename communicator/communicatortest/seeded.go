package communicatortest

// This file holds the schedule of faults that follows from a seed.

import (
	"errors"
	"fmt"
	"time"

	"github.com/f8949c05/orchestrator"
)

// Schedule says how often a network misbehaves, and by which seed. Its zero
// value is a network without faults. All probabilities lie in [0, 1].
type Schedule struct {
	// Seed selects one of the possible fates. Any value will do.
	Seed uint64

	// List, Add and Remove say how often calls of each kind meet a fault.
	List, Add, Remove Rates

	// MinLatency and MaxLatency bound Fault.Latency, which every call has, with
	// or without another fault. 0 <= MinLatency <= MaxLatency.
	MinLatency, MaxLatency time.Duration

	// MinLate and MaxLate bound Fault.Late. 0 <= MinLate <= MaxLate. While both
	// are 0, what is late is so by the least possible, and what is stuck is so
	// until [Faulty.Heal].
	MinLate, MaxLate time.Duration

	// Partition is the probability that a worker is cut off for a span of
	// terms: all its calls meet LostRequest. OneWay is the probability that
	// only what it says is lost: all its calls meet LostAnswer. Their sum is at
	// most 1. A request that is lost looks the same to its caller whether an
	// answer could have got through or not, so there is no third kind.
	Partition, OneWay float64

	// Span is how many terms of one leader a partition lasts. The spans of
	// different workers begin in different terms; partitions that follow one
	// another last longer. 0 means 3.
	Span uint64
}

// Rates are the probabilities of the faults of one kind of call. Their sum is
// at most 1, and what it leaves is the probability of [NoFault].
type Rates struct {
	Refusal, Failure, FalseFailure, LostRequest, LostAnswer, LateAnswer, LateLanding, Stuck float64
}

// byKind returns the probabilities, each at its FaultKind.
func (r Rates) byKind() [faultKinds]float64 {
	return [faultKinds]float64{
		Refusal: r.Refusal, Failure: r.Failure, FalseFailure: r.FalseFailure,
		LostRequest: r.LostRequest, LostAnswer: r.LostAnswer,
		LateAnswer: r.LateAnswer, LateLanding: r.LateLanding, Stuck: r.Stuck,
	}
}

// Seeded returns a function for [NewFaulty] that follows a schedule. What it
// returns is a pure function of the schedule and the Call: of the seed, the
// term's epoch and number, the operation, the worker and the task. It does not
// depend on what was asked before, nor on the process, so that a seed that made
// a test fail makes it fail again, and a call repeated within a term meets the
// same fault again. Calls that belong to no term meet the same in all
// eternity.
//
// Workers and tasks are told apart by what fmt prints for them with %v. So
// names that print alike share their fate, and names that print a pointer have
// another one in the next process.
//
// The error, if any, wraps orchestrator.ErrInvalid and names every field that
// is out of range.
func Seeded[W, T comparable](s Schedule) (func(Call[W, T]) Fault, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	if s.Span == 0 {
		s.Span = 3
	}
	return func(c Call[W, T]) Fault {
		h := newHash(s.Seed)
		h.number(c.Term.Epoch)
		h.number(c.Term.Number)
		h.number(uint64(c.Op))
		h.name(c.Worker)
		h.name(c.Task)
		fault := Fault{
			Kind:    pick(h.draw(), s.rates(c.Op).byKind()),
			Latency: between(h.draw(), s.MinLatency, s.MaxLatency),
			Late:    between(h.draw(), s.MinLate, s.MaxLate),
		}
		if kind := partition(s, c.Term, c.Worker); kind != NoFault {
			fault.Kind = kind
		}
		return fault
	}, nil
}

// partition returns what a partition does to all calls to a worker in a term.
func partition[W comparable](s Schedule, term orchestrator.Term, worker W) FaultKind {
	if s.Partition == 0 && s.OneWay == 0 {
		return NoFault
	}
	h := newHash(s.Seed)
	h.name(worker)
	offset := h.next() % s.Span // where the worker's spans begin
	h.number(term.Epoch)
	h.number((term.Number + offset) / s.Span)
	return pick(h.draw(), [faultKinds]float64{LostRequest: s.Partition, LostAnswer: s.OneWay})
}

// rates returns the rates for an operation.
func (s Schedule) rates(op orchestrator.Op) Rates {
	switch op {
	case orchestrator.OpList:
		return s.List
	case orchestrator.OpAdd:
		return s.Add
	default:
		return s.Remove
	}
}

// pick returns the kind that a number in [0, 1) falls to.
func pick(x float64, rates [faultKinds]float64) FaultKind {
	for kind, rate := range rates {
		if x < rate {
			return FaultKind(kind)
		}
		x -= rate
	}
	return NoFault
}

// between returns the duration that lies between two as x lies in [0, 1).
func between(x float64, least, most time.Duration) time.Duration {
	return least + time.Duration(x*float64(most-least))
}

// validate reports everything that is out of range.
func (s Schedule) validate() error {
	var errs []error
	probabilities := func(field string, ps ...float64) {
		sum := 0.0
		for _, p := range ps {
			if !(p >= 0 && p <= 1) { // also if it is no number
				errs = append(errs, fmt.Errorf("%w: %s holds the probability %v, want 0 to 1", orchestrator.ErrInvalid, field, p))
			}
			sum += p
		}
		const rounding = 1e-9 // ten times 0.1 is 1
		if sum > 1+rounding {
			errs = append(errs, fmt.Errorf("%w: the probabilities of %s have the sum %v, want at most 1", orchestrator.ErrInvalid, field, sum))
		}
	}
	durations := func(field string, least, most time.Duration) {
		if least < 0 || most < least {
			errs = append(errs, fmt.Errorf("%w: Min%s is %v and Max%s is %v, want 0 <= min <= max",
				orchestrator.ErrInvalid, field, least, field, most))
		}
	}
	for _, r := range []struct {
		field string
		rates Rates
	}{{"Schedule.List", s.List}, {"Schedule.Add", s.Add}, {"Schedule.Remove", s.Remove}} {
		byKind := r.rates.byKind()
		probabilities(r.field, byKind[:]...)
	}
	probabilities("Schedule.Partition and OneWay", s.Partition, s.OneWay)
	durations("Latency", s.MinLatency, s.MaxLatency)
	durations("Late", s.MinLate, s.MaxLate)
	return errors.Join(errs...)
}
