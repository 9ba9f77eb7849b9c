//go:build peers

package main

import (
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
	require.Zero(t, medianOf(r.steady, etcdCost.requests))

	require.Equal(t, "20 × 2", r.tables()[0].Title)
	require.Len(t, r.goals(), 5)
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

func TestTaskLog_TwiceIsAnError(t *testing.T) {
	var l taskLog
	l.init()
	require.NoError(t, l.start("a", "x"))
	require.ErrorContains(t, l.start("a", "y"), "a runs on x and on y")
	l.stop("a", "x")
	require.NoError(t, l.start("a", "y"))
}
