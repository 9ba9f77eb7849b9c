package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/stats"
)

func TestOnEtcd(t *testing.T) {
	cfg := short()
	cfg.log = t.Logf
	cfg.etcd = etcdConfig{size: size{20, 2, 1}, lease: 2 * time.Second, colds: 1, steady: 3}
	r, err := measureEtcd(t.Context(), cfg)
	require.NoError(t, err)

	cold := r.cold[0]
	require.Equal(t, 20, cold.starts)
	require.Equal(t, 2, cold.begun)
	require.GreaterOrEqual(t, cold.txns[leaders], 2, "one assignment for each worker")
	require.GreaterOrEqual(t, cold.txns[workers], 2, "one claim of each worker")
	require.GreaterOrEqual(t, cold.watches[workers], 20, "one for each task's content")
	require.Greater(t, cold.read[workers], 20*etcdContent, "contents were read")
	require.Len(t, r.steady, 3)
	for _, e := range r.steady {
		require.Equal(t, 1, e.begun)
		require.Equal(t, 3, e.largest, "the leader's key is compared, the term's number is written twice")
		require.Positive(t, e.allRead())
	}
	require.Zero(t, medianOf(r.steady, episode.requests))

	var b strings.Builder
	r.write(&b, cfg.etcd)
	require.Contains(t, b.String(), "20 × 2, one instance each")
	require.Len(t, r.goals(), 4)
}

func TestTraffic(t *testing.T) {
	var c counter
	send := func(of side, method string, message any, size int) {
		h := handler{&c, of}
		ctx := h.TagRPC(t.Context(), &stats.RPCTagInfo{FullMethodName: method})
		h.HandleRPC(ctx, &stats.OutPayload{Payload: message, WireLength: size})
		h.HandleRPC(ctx, &stats.InPayload{WireLength: 10 * size})
	}
	put := func(key string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key)}}}
	}
	nested := &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{
		Compare: []*pb.Compare{{}, {}}, Success: []*pb.RequestOp{put("a")}, Failure: []*pb.RequestOp{put("b"), put("c")},
	}}}
	send(leaders, "/etcdserverpb.KV/Txn", &pb.TxnRequest{Compare: []*pb.Compare{{}}, Success: []*pb.RequestOp{put("/work/term")}}, 1)
	send(workers, "/etcdserverpb.KV/Txn", &pb.TxnRequest{Compare: []*pb.Compare{{}}, Success: []*pb.RequestOp{nested, put("d")}}, 2)
	send(leaders, "/etcdserverpb.KV/Range", &pb.RangeRequest{}, 3)
	send(workers, "/etcdserverpb.Watch/Watch", &pb.WatchRequest{
		RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{}},
	}, 4)
	send(workers, "/etcdserverpb.Lease/LeaseKeepAlive", &pb.LeaseKeepAliveRequest{}, 1000)

	got := c.take()
	require.Equal(t, 1, got.begun)
	require.Equal(t, [sides]int{workers: 1}, got.txns)
	require.Equal(t, [sides]int{leaders: 1}, got.reads)
	require.Equal(t, [sides]int{workers: 1}, got.watches)
	require.Equal(t, 1+2+1+2+1, got.largest)
	require.Equal(t, [sides]int{leaders: 4, workers: 6}, got.written)
	require.Equal(t, [sides]int{leaders: 40, workers: 60}, got.read)
	require.Zero(t, c.take(), "take resets the count")
}

func TestLedger_TwiceIsAnError(t *testing.T) {
	var l ledger
	l.init()
	require.NoError(t, l.start("a", "x"))
	require.ErrorContains(t, l.start("a", "y"), "a runs on x and on y")
	l.stop("a", "x")
	require.NoError(t, l.start("a", "y"))
}

func TestSplice(t *testing.T) {
	const report = `# Benchmarks

## Goals

Some words. 1 of 2 are met.

| what | measured | goal     |             |
| ---- | -------- | -------- | ----------- |
| fast | 1 × scan | at most 2 | met         |
| slow | 9 × scan | at most 2 | **not met** |

## Whole terms

as they are

## How it is measured

in turn
`
	once, err := partOnEtcd.splice(report, "\n## On etcd\n\nfirst\n", []goal{{partOnEtcd.goal + "a", "1", "2", true}, {partOnEtcd.goal + "b", "3", "2", false}})
	require.NoError(t, err)
	twice, err := partOnEtcd.splice(once, "\n## On etcd\n\nsecond\n", []goal{{partOnEtcd.goal + "a", "1", "2", true}})
	require.NoError(t, err)
	require.Contains(t, once, "Some words. 2 of 4 are met.\n")
	require.Contains(t, once, "as they are\n\n## On etcd\n\nfirst\n\n## How it is measured\n\nin turn\n")
	require.Equal(t, `# Benchmarks

## Goals

Some words. 2 of 3 are met.

| what       | measured | goal      |             |
| ---------- | -------- | --------- | ----------- |
| fast       | 1 × scan | at most 2 | met         |
| slow       | 9 × scan | at most 2 | **not met** |
| on etcd, a | 1        | 2         | met         |

## Whole terms

as they are

## On etcd

second

## How it is measured

in turn
`, twice)

	_, err = partOnEtcd.splice("# Something else\n", "", nil)
	require.ErrorContains(t, err, "the part \"How it is measured\" is missing")
}
