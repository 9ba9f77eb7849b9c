package communicatortest

// The schedule of faults that follows from a seed.

import (
	"errors"
	"fmt"
	"time"

	"github.com/f8949c05/orchestrator"
)

// Schedule sets the probabilities of faults, and the seed. The zero value is a
// network without faults. All probabilities are between 0 and 1.
type Schedule struct {
	// Seed selects one of the possible sequences of faults. Any value is valid.
	Seed uint64

	// List, Add and Remove are the fault probabilities of each kind of call.
	List, Add, Remove Rates

	// MinLatency and MaxLatency bound Fault.Latency, which applies to every call. 0
	// <= MinLatency <= MaxLatency.
	MinLatency, MaxLatency time.Duration

	// MinLate and MaxLate bound Fault.Late. 0 <= MinLate <= MaxLate. If both are 0,
	// late calls are delayed by the least possible time, and stuck calls until
	// [Faulty.Heal].
	MinLate, MaxLate time.Duration

	// Partition is the probability that a worker is cut off for a span of terms: all
	// its calls get LostRequest. OneWay is the probability that only its answers are
	// lost: all its calls get LostAnswer. Their sum is at most 1. A third kind, in
	// which only requests are lost, would look the same to the caller as Partition.
	Partition, OneWay float64

	// Span is the duration of a partition in terms of one leader. The spans of
	// different workers begin in different terms. Consecutive partitions last
	// longer. 0 means 3.
	Span uint64
}

// Rates are the fault probabilities of one kind of call. Their sum is at most 1; the
// rest is the probability of [NoFault].
type Rates struct {
	Refusal, Failure, FalseFailure, LostRequest, LostAnswer, LateAnswer, LateRequest, Stuck float64
}

// byKind returns the probabilities, indexed by FaultKind.
func (r Rates) byKind() [faultKinds]float64 {
	return [faultKinds]float64{
		Refusal: r.Refusal, Failure: r.Failure, FalseFailure: r.FalseFailure,
		LostRequest: r.LostRequest, LostAnswer: r.LostAnswer,
		LateAnswer: r.LateAnswer, LateRequest: r.LateRequest, Stuck: r.Stuck,
	}
}

// Seeded returns a function for [NewFaulty] that follows a schedule. The function is
// pure: its result depends only on the schedule and the Call, not on earlier calls
// or on the process. It uses the seed, the term's epoch and number, the operation,
// the worker and the task. So a seed that made a test fail makes it fail again, and
// a call repeated within a term gets the same fault again. A call without a term
// always gets the same fault.
//
// Workers and tasks are distinguished by the text that fmt prints for them with %v.
// So names with the same text get the same faults, and names that print a pointer
// get other faults in another process.
//
// The error wraps orchestrator.ErrInvalid and names every field that is out of
// range.
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

// partition returns the effect of partitions on all calls to a worker in a term.
func partition[W comparable](s Schedule, term orchestrator.Term, worker W) FaultKind {
	if s.Partition == 0 && s.OneWay == 0 {
		return NoFault
	}
	h := newHash(s.Seed)
	h.name(worker)
	offset := h.next() % s.Span // the offset of the worker's spans
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

// pick returns the kind into whose range x, a number in [0, 1), falls.
func pick(x float64, rates [faultKinds]float64) FaultKind {
	for kind, rate := range rates {
		if x < rate {
			return FaultKind(kind)
		}
		x -= rate
	}
	return NoFault
}

// between interpolates between two durations; x is in [0, 1).
func between(x float64, least, most time.Duration) time.Duration {
	return least + time.Duration(x*float64(most-least))
}

// validate returns all errors in the schedule.
func (s Schedule) validate() error {
	var errs []error
	probabilities := func(field string, ps ...float64) {
		sum := 0.0
		for _, p := range ps {
			if !(p >= 0 && p <= 1) { // also catches NaN
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

// hash is a 64-bit FNV-1a of its input, and a splitmix64 generator that starts from
// it. FNV alone does not suffice: its upper bits hardly depend on the last bytes.
type hash struct{ state uint64 }

// newHash returns a hash that begins with a seed.
func newHash(seed uint64) *hash {
	h := &hash{0xcbf29ce484222325}
	h.number(seed)
	return h
}

// number adds a number to the input.
func (h *hash) number(n uint64) {
	for range 8 {
		h.octet(byte(n))
		n >>= 8
	}
}

// name adds the text that fmt prints for v, and its length, so that consecutive
// names do not run together.
func (h *hash) name(v any) {
	text := fmt.Append(nil, v)
	for _, b := range text {
		h.octet(b)
	}
	h.number(uint64(len(text)))
}

func (h *hash) octet(b byte) {
	h.state = (h.state ^ uint64(b)) * 0x100000001b3
}

// next returns 64 random bits.
func (h *hash) next() uint64 {
	h.state += 0x9e3779b97f4a7c15
	z := h.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// draw returns a random number in [0, 1).
func (h *hash) draw() float64 { return float64(h.next()>>11) / (1 << 53) }
