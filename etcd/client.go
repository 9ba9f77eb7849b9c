package etcd

// The client of etcd: how to set it up for what this package does with it.

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// ClientConfig returns settings for [clientv3.New] that suit leaders and workers.
// They differ from the client's own in three ways, which decide how long it
// takes to go on after a failure:
//
//   - A connection that was lost is tried again every second at the latest. The
//     client's own pauses grow to two minutes, so that an etcd that was away for one
//     is found again long after it is back.
//   - A connection that says nothing for 10 s is probed, and given up 3 s later.
//     Without that, one whose other end has silently gone is kept for a quarter of an
//     hour, though other endpoints would answer.
//   - The client does not log; what matters of its errors reaches the callers.
//
// Dialing takes 5 s at most. Everything may be changed, and TLS, Username and
// Password added. Any client will do: none of this is needed for safety.
func ClientConfig(endpoints ...string) clientv3.Config {
	again := backoff.DefaultConfig
	again.BaseDelay = 100 * time.Millisecond
	again.MaxDelay = time.Second
	return clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: []grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: time.Second}),
		},
		Logger: zap.NewNop(),
	}
}
