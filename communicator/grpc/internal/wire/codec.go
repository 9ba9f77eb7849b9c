package wire

// The codecs for messages from workers. They inspect a message before they decode it.

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// Response is the answer to a call of a worker.
type Response interface {
	// Decode reads a message. It does not retain data.
	Decode(data []byte) error
}

// ResponseCodec encodes requests as gRPC does, and lets responses decode themselves.
type ResponseCodec struct{}

var _ encoding.CodecV2 = ResponseCodec{}

// Name returns the name of gRPC's own codec, because the encoding is the same.
func (ResponseCodec) Name() string { return "proto" }

// Marshal encodes a message.
func (ResponseCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a message", v)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal decodes an answer. It does not retain data.
func (ResponseCodec) Unmarshal(data mem.BufferSlice, v any) error {
	a, ok := v.(Response)
	if !ok {
		return fmt.Errorf("%T is not an answer", v)
	}
	all := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer all.Free()
	return a.Decode(all.ReadOnlyData())
}

// MaxCompletions is the number of tasks that one call may complete.
const MaxCompletions = 1000

// RequestCodec decodes a manager's requests. Of too many completions, or labels, it
// decodes only one more than allowed, and the manager then refuses the request.
type RequestCodec struct{ ResponseCodec }

var _ encoding.CodecV2 = RequestCodec{}

// Unmarshal decodes a request. It does not retain data.
func (RequestCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a message", v)
	}
	all := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer all.Free()
	content := all.ReadOnlyData()
	var err error
	switch m.(type) {
	case *orchestratorv1.CompleteRequest:
		const completions = 2
		content, err = first(content, completions, MaxCompletions+1)
	case *orchestratorv1.RegisterRequest:
		content, err = fewLabels(content)
	}
	if err != nil {
		return err
	}
	return proto.Unmarshal(content, m)
}

// fewLabels returns a registration that keeps only the first settings, and of their labels
// only one more than allowed.
func fewLabels(data []byte) (kept []byte, err error) {
	const settings, labels = 6, 2
	if data, err = first(data, settings, 1); err != nil {
		return nil, err
	}
	kept = make([]byte, 0, len(data))
	err = fields(data, func(f field) error {
		if !f.is(settings, protowire.BytesType) {
			kept = append(kept, f.whole...)
			return nil
		}
		few, err := first(f.bytes, labels, orchestrator.MaxLabels+1)
		kept = protowire.AppendBytes(protowire.AppendTag(kept, settings, protowire.BytesType), few)
		return err
	})
	return kept, err
}

// first returns a message that keeps only the first most submessages of a field. If
// there are no more than that, it returns data itself.
func first(data []byte, id protowire.Number, most int) (kept []byte, err error) {
	if n, err := count(data, id); err != nil || n <= most {
		return data, err
	}
	n := 0
	err = fields(data, func(f field) error {
		if f.id == id {
			n++
		}
		if f.id != id || n <= most {
			kept = append(kept, f.whole...)
		}
		return nil
	})
	return kept, err
}

// field is a field of a message.
type field struct {
	id     protowire.Number
	kind   protowire.Type
	whole  []byte // with its tag
	bytes  []byte // for BytesType
	number uint64 // for VarintType and Fixed64Type
}

func (f field) is(id protowire.Number, kind protowire.Type) bool { return f.id == id && f.kind == kind }

// ErrMalformed reports bytes that are no message.
var ErrMalformed = errors.New("not a message")

// fields calls yield for each field of a message.
func fields(data []byte, yield func(field) error) error {
	for len(data) > 0 {
		whole := data
		id, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(n))
		}
		if !id.IsValid() { // accepted by ConsumeTag, but not by protobuf
			return fmt.Errorf("%w: field %d", ErrMalformed, id)
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
			return fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(n))
		}
		data = data[n:]
		f.whole = whole[:len(whole)-len(data)]
		if err := yield(f); err != nil {
			return err
		}
	}
	return nil
}

// count returns the number of submessages in a field of a message.
func count(data []byte, id protowire.Number) (n int, err error) {
	err = fields(data, func(f field) error {
		if f.is(id, protowire.BytesType) {
			n++
		}
		return nil
	})
	return n, err
}
