package grpc

// Hostile workers: answers that are small on the wire and large when decoded.

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// Millions of results for one change are an error of that change, and take no more
// memory than the message.
func TestR3_AnAnswerOfMillionsOfResults(t *testing.T) {
	good, liar := hire(t), Worker{"liar", 1}
	for name, c := range map[string]struct {
		answer []byte
		says   string // "": a valid answer
	}{
		"of results":               {grpctest.Filled(1), "worker answered 8388608 of 1 changes"},
		"of unknown fields":        {grpctest.Filled(9), "worker answered 0 of 1 changes"},
		"of that, and of a result": {grpctest.Filled(9, 0x0a, 0x02, 0x08, byte(orchestratorv1.Outcome_OUTCOME_DONE)), ""},
		"of a result within which": {inside(1), "outcome unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			comm := communicator(t)
			introduce(t, comm, good.as("w1"), good.addr)
			introduce(t, comm, liar, grpctest.ServeAnswer(t, c.answer))
			list := func(ctx context.Context) error {
				_, err := comm.List(ctx, good.as("w1"))
				return err
			}
			grpctest.Meanwhile(t, grpctest.AnswerMemory, list, list, func() {
				err := comm.Add(t.Context(), liar, "t")
				if c.says == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, c.says)
			})
		})
	}
}

// inside returns one submessage of nearly maximum length, which consists of empty
// unknown fields.
func inside(field protowire.Number) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), grpctest.Filled(9)[:15*grpctest.Mebi])
}
