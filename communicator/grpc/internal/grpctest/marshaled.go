package grpctest

import (
	"testing"

	"google.golang.org/protobuf/proto"
)

// Marshaled returns the bytes of a message.
func Marshaled(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
