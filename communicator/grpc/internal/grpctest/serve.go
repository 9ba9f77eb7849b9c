package grpctest

// Servers of any answers, the messages that they send and get, and their logs.

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Serve serves on loopback until the test ends, and returns the address.
func Serve(t testing.TB, s *grpc.Server) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// Verbatim is a codec that changes nothing: a message is a slice of bytes.
type Verbatim struct{}

// Name returns the name of gRPC's own codec.
func (Verbatim) Name() string { return "proto" }

// Unmarshal drops a message.
func (Verbatim) Unmarshal(mem.BufferSlice, any) error { return nil }

// Marshal returns the bytes.
func (Verbatim) Marshal(v any) (mem.BufferSlice, error) {
	content, _ := v.([]byte)
	return mem.BufferSlice{mem.SliceBuffer(content)}, nil
}

// ServeAnswer answers every call with the same bytes.
func ServeAnswer(t testing.TB, answer []byte) (address string) {
	t.Helper()
	return Serve(t, grpc.NewServer(grpc.ForceServerCodecV2(Verbatim{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(nil); err != nil {
			return err
		}
		return stream.SendMsg(answer)
	})))
}

// Filled returns a message of 16 MiB, the default maximum, that consists of empty
// submessages of one field.
func Filled(field byte, begin ...byte) []byte {
	return append(begin, bytes.Repeat([]byte{field<<3 | 2, 0}, (16*Mebi-len(begin))/2)...)
}

// AnswerMemory bounds the memory for an answer of 16 MiB. The answer exists at both
// ends and in transit, as a whole and in parts.
const AnswerMemory = 160 * Mebi

// EmptyCompletions returns a CompleteRequest with as many empty completions as fit into
// size bytes.
func EmptyCompletions(worker string, size int) []byte {
	const completions = 2
	request := protowire.AppendBytes(protowire.AppendTag(nil, completions, protowire.BytesType), nil)
	for len(request) < size/2 {
		request = append(request, request...)
	}
	return protowire.AppendString(protowire.AppendTag(request, 1, protowire.BytesType), worker)
}

// Marshaled returns the bytes of a message.
func Marshaled(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Journal is a log that may be read while it is written. The zero value is empty.
type Journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *Journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

// String returns everything that was logged.
func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// Count returns how often a text was logged.
func (j *Journal) Count(what string) int { return strings.Count(j.String(), what) }

// Logger returns a logger that writes lines of text, of every level, to the journal.
func (j *Journal) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
