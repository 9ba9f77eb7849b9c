package grpc

// The codecs for the messages of workers. Protobuf makes a structure of each empty
// part of a message, and so of every two bytes: what a worker sends is looked at
// before, so that it takes no more memory than a few times its length, whatever it
// is.

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// answer is what a worker answers. Every call to a worker is made with one.
type answer interface {
	// decode reads a message, of which it keeps nothing.
	decode(data []byte) error
}

// answerCodec writes requests as gRPC does, and has answers read themselves.
type answerCodec struct{}

var _ encoding.CodecV2 = answerCodec{}

// Name is that of gRPC's own, which it does not differ from on the wire.
func (answerCodec) Name() string { return "proto" }

// Marshal writes a message.
func (answerCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("a %T is no message", v)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal reads an answer. It keeps nothing of data.
func (answerCodec) Unmarshal(data mem.BufferSlice, v any) error {
	a, ok := v.(answer)
	if !ok {
		return fmt.Errorf("a %T is no answer", v)
	}
	all := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer all.Free()
	return a.decode(all.ReadOnlyData())
}

// requestCodec is what a manager reads requests with: it makes nothing of more
// completions than one too many, which the manager then refuses.
type requestCodec struct{ answerCodec }

var _ encoding.CodecV2 = requestCodec{}

// Unmarshal reads a request. It keeps nothing of data.
func (requestCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("a %T is no message", v)
	}
	all := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer all.Free()
	content := all.ReadOnlyData()
	if _, ok := m.(*orchestratorv1.CompleteRequest); ok {
		const completions = 2
		var err error
		if content, err = first(content, completions, maxCompletions+1); err != nil {
			return err
		}
	}
	return proto.Unmarshal(content, m)
}

// first returns a message with the first most of the messages that it holds in a
// field. If those are all, it returns data itself.
func first(data []byte, id protowire.Number, most int) ([]byte, error) {
	n, err := count(data, id)
	if err != nil || n <= most {
		return data, err
	}
	var kept []byte
	for seen := 0; len(data) > 0; {
		number, _, length := protowire.ConsumeField(data)
		if length < 0 {
			return nil, fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(length))
		}
		if number == id {
			seen++
		}
		if number != id || seen <= most {
			kept = append(kept, data[:length]...)
		}
		data = data[length:]
	}
	return kept, nil
}

// field is one field of a message.
type field struct {
	id     protowire.Number
	kind   protowire.Type
	bytes  []byte // of BytesType
	number uint64 // of VarintType and Fixed64Type
}

func (f field) is(id protowire.Number, kind protowire.Type) bool { return f.id == id && f.kind == kind }

var errMalformed = errors.New("not a message")

// fields goes through a message.
func fields(data []byte, yield func(field) error) error {
	for len(data) > 0 {
		id, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
		}
		if !id.IsValid() { // which ConsumeTag lets through, and protobuf does not
			return fmt.Errorf("%w: field %d", errMalformed, id)
		}
		data = data[n:]
		f := field{id: id, kind: kind}
		switch kind {
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(data)
		case protowire.VarintType:
			f.number, n = protowire.ConsumeVarint(data)
		case protowire.Fixed64Type:
			f.number, n = protowire.ConsumeFixed64(data)
		default:
			n = protowire.ConsumeFieldValue(id, kind, data)
		}
		if n < 0 {
			return fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
		}
		data = data[n:]
		if err := yield(f); err != nil {
			return err
		}
	}
	return nil
}

// count returns how many messages a message holds in a field.
func count(data []byte, id protowire.Number) (n int, err error) {
	err = fields(data, func(f field) error {
		if f.is(id, protowire.BytesType) {
			n++
		}
		return nil
	})
	return n, err
}
