package communicator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFunc_PassesEverythingOn(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "kept")
	answer := errors.New("answer")
	listed := []string{"a"}
	var calls []string
	write := func(op string) func(context.Context, int, string) error {
		return func(ctx context.Context, w int, task string) error {
			calls = append(calls, fmt.Sprintf("%s %d %s %v", op, w, task, ctx.Value(key{})))
			return answer
		}
	}
	f := communicator.Func[int, string]{
		ListFunc: func(ctx context.Context, w int) ([]string, error) {
			calls = append(calls, fmt.Sprintf("list %d %v", w, ctx.Value(key{})))
			return listed, answer
		},
		AddFunc:    write("add"),
		RemoveFunc: write("remove"),
	}
	got, err := f.List(ctx, 1)
	require.Equal(t, answer, err)
	require.Same(t, &listed[0], &got[0])
	require.Equal(t, answer, f.Add(ctx, 2, "b"))
	require.Equal(t, answer, f.Remove(ctx, 3, "c"))
	require.Equal(t, []string{"list 1 kept", "add 2 b kept", "remove 3 c kept"}, calls)
}

func TestFunc_SaysWhichFunctionIsMissing(t *testing.T) {
	var f communicator.Func[int, string]
	_, err := f.List(t.Context(), 1)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	require.ErrorContains(t, err, "ListFunc")
	for name, err := range map[string]error{
		"AddFunc":    f.Add(t.Context(), 1, "a"),
		"RemoveFunc": f.Remove(t.Context(), 1, "a"),
	} {
		require.ErrorIs(t, err, orchestrator.ErrRejected)
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		require.ErrorContains(t, err, name)
	}
}
