package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
)

var (
	_ replica.Backend   = (*memory.Table)(nil)
	_ replica.Waiter    = (*memory.Table)(nil)
	_ replica.Describer = (*memory.Table)(nil)
)

// A member joins a table and is elected.
func Example() {
	ctx := context.Background()
	table := memory.New()
	v, _ := table.Read(ctx, replica.Query{Self: 1})
	u := replica.Update{
		Query:    replica.Query{Self: 1, Server: v.Server, Beats: true},
		Member:   replica.Member{ID: 1, Heartbeat: 1, Name: "one", Joined: 1, Lease: time.Minute},
		Campaign: 1 << 32,
	}
	v, err := table.Sync(ctx, u)
	fmt.Println(err, v.Confirmed, v.Leader, v.Epoch == 1<<32, v.Beats, v.Members[0].Name)
	// Output: <nil> true 1 true map[1:1] one
}

// joined returns a table with member 1, and a function that syncs it.
func joined(t *testing.T) (table *memory.Table, sync func(change func(*replica.Update)) (replica.View, error)) {
	t.Helper()
	table = memory.New()
	v, err := table.Read(t.Context(), replica.Query{})
	require.NoError(t, err)
	beat, server := uint64(0), v.Server
	sync = func(change func(*replica.Update)) (replica.View, error) {
		beat++
		u := replica.Update{
			Query:  replica.Query{Self: 1, Server: server, Beats: true, Follow: true},
			Member: replica.Member{ID: 1, Heartbeat: beat, Name: "a\xff\x00b", Lease: time.Minute},
			Report: &replica.Report{Applied: 3, Also: []string{"\xfe"}},
		}
		if change != nil {
			change(&u)
		}
		v, err := table.Sync(t.Context(), u)
		if err == nil {
			server = v.Server
		}
		return v, err
	}
	_, err = sync(nil)
	require.NoError(t, err)
	return table, sync
}

func TestB7_SignsOfALoss(t *testing.T) {
	for name, lose := range map[string]func(*memory.Table){
		"restored": func(table *memory.Table) { table.Restore(table.Save()) },
		"an epoch": func(table *memory.Table) { table.Edit(func(r *memory.Records) { r.Epoch = replica.MaxEpoch }) },
		"a lease":  func(table *memory.Table) { table.Edit(func(r *memory.Records) { r.Lease = time.Hour }) },
		"the own record": func(table *memory.Table) {
			table.Edit(func(r *memory.Records) { r.Members[1].Record = replica.Member{} })
		},
		"an order is gone": func(table *memory.Table) { table.Edit(func(r *memory.Records) { delete(r.Members[1].Orders, "t") }) },
	} {
		table, sync := joined(t)
		v, _ := sync(func(u *replica.Update) { u.Campaign = 1 << 40 })
		_, err := sync(func(u *replica.Update) {
			u.Batch = &replica.Batch{Epoch: 1 << 40, Version: 1<<40 + 1, Orders: []replica.Order{{Member: 1, Task: "t", Version: 1<<40 + 1}}}
		})
		require.NoError(t, err)
		before := v.Server
		lose(table)
		v, err = sync(nil)
		require.NoError(t, err, name)
		require.NotEqual(t, before, v.Server, name)
		require.False(t, v.Confirmed, name)
		again := v.Server
		v, _ = sync(func(u *replica.Update) { u.Campaign = 1 << 50 })
		require.Equal(t, again, v.Server, name)
		require.NotEqualValues(t, 1<<50, v.Epoch, "not confirmed")
		v, _ = sync(func(u *replica.Update) { u.Confirm = true })
		require.True(t, v.Confirmed, name)
	}
}

func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, sync := joined(t)
		fault := memory.Fault{}
		table.SetFaults(func(replica.Update) memory.Fault { return fault })
		shown := func() string {
			v, err := table.Read(t.Context(), replica.Query{Self: 2})
			require.NoError(t, err)
			return v.Members[0].Name
		}
		try := func(f memory.Fault, name string) error {
			fault = f
			_, err := sync(func(u *replica.Update) { u.Member.Name = name })
			fault = memory.Fault{}
			return err
		}
		require.ErrorIs(t, try(memory.Fault{Err: memory.ErrInjected}, "lost"), memory.ErrInjected)
		require.ErrorIs(t, try(memory.Fault{Err: orchestrator.ErrRejected}, "refused"), orchestrator.ErrRejected)
		require.Equal(t, "a\xff\x00b", shown())
		require.ErrorIs(t, try(memory.Fault{Err: memory.ErrInjected, Again: time.Second}, "late"), memory.ErrInjected)
		require.Equal(t, "a\xff\x00b", shown())
		time.Sleep(2 * time.Second)
		require.Equal(t, "late", shown())
		require.NoError(t, try(memory.Fault{Again: time.Second}, "again"))
		require.NoError(t, try(memory.Fault{Before: time.Second, After: time.Second}, "newer"))
		time.Sleep(2 * time.Second)
		require.Equal(t, "newer", shown(), "the repeated call only reads")

		fault = memory.Fault{After: time.Hour}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
		defer cancel()
		_, err := table.Read(ctx, replica.Query{Self: 2})
		require.ErrorContains(t, err, "enough")
	})
}

// The order record is edited after the report was read, and before it is read itself.
func TestO9_AnEditBetweenTwoReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := memory.NewPiecewise()
		sync := func(beat uint64, change func(*replica.Update)) {
			v, err := table.Read(t.Context(), replica.Query{Self: 1})
			require.NoError(t, err)
			u := replica.Update{Query: replica.Query{Self: 1, Server: v.Server}, Member: replica.Member{ID: 1, Heartbeat: beat, Lease: time.Minute}, Reading: v.Reading}
			change(&u)
			_, err = table.Sync(t.Context(), u)
			require.NoError(t, err)
		}
		sync(1, func(u *replica.Update) { u.Campaign = 1 << 40 })
		sync(2, func(u *replica.Update) {
			u.Batch = &replica.Batch{Epoch: 1 << 40, Version: 1<<40 + 1, Orders: []replica.Order{{Member: 1, Task: "t", Version: 1<<40 + 1, Epoch: 1 << 40}}}
		})
		sync(3, func(u *replica.Update) { u.Report = &replica.Report{Applied: 1<<40 + 1} })
		table.SetFaults(func(replica.Update) memory.Fault { return memory.Fault{Between: time.Second} })
		time.AfterFunc(time.Second/2, func() { table.Edit(func(r *memory.Records) { clear(r.Members[1].Orders) }) })
		v, err := table.Read(t.Context(), replica.Query{Self: 2, Follow: true})
		require.NoError(t, err)
		require.Empty(t, v.Orders)
		require.Empty(t, v.Reports, "it was made from another order record")
	})
}
