package etcd

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// ClientConfig returns settings for [clientv3.New] that suit leaders and workers.
// They differ from the client's defaults in three ways, two of which shorten the
// recovery from a failure:
//
//   - A lost connection is retried at least once a second. By default the pauses
//     grow to two minutes, so the client would find a recovered etcd much later.
//   - A connection that is silent for 10 s is probed, and closed 3 s later if the
//     probe has no answer. Without probes, a connection whose peer has vanished is
//     kept for a quarter of an hour, even if other endpoints would answer.
//   - The client does not log, because its relevant errors reach the callers.
//
// Dialing takes at most 5 s. Callers may change every setting, and add TLS, Username
// and Password. None of the settings is needed for safety, so any client will do.
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
