package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// explain returns err in one line that says what to do.
func (t *Table) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return t.silence(ctx)
	}
	user := t.client.Username
	for _, known := range []struct {
		err    error
		advice string
	}{
		{rpctypes.ErrAuthFailed, fmt.Sprintf("the name or the password of user %q is wrong: see Username and Password of the client's Config", user)},
		{rpctypes.ErrUserEmpty, "etcd asks for a user: set Username and Password of the client's Config"},
		{rpctypes.ErrPermissionDenied, fmt.Sprintf("user %q may not read and write the keys below %s: "+
			"etcdctl role grant-permission ROLE --prefix=true readwrite %[2]s, and etcdctl user grant-role %[1]s ROLE", user, t.prefix)},
		{rpctypes.ErrNoSpace, "etcd is full: etcdctl compact REVISION, etcdctl defrag, and then etcdctl alarm disarm"},
		{rpctypes.ErrRequestTooLarge, "etcd takes less than by default: see its flag --max-request-bytes"},
		{rpctypes.ErrTooManyOps, "etcd takes less than by default: see its flag --max-txn-ops"},
	} {
		if errors.Is(err, known.err) {
			return fmt.Errorf("%s: %w", known.advice, err)
		}
	}
	return err
}

// silence returns why a call had no answer until its context has ended. etcd's client waits for a
// connection, and says no more than that. So it makes one request that does not wait.
func (t *Table) silence(ctx context.Context) error {
	cause := fmt.Errorf("etcd at %s: %w", strings.Join(t.client.Endpoints(), ", "), context.Cause(ctx))
	conn := t.client.ActiveConnection()
	if conn == nil {
		return cause
	}
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 50*time.Millisecond)
	defer cancel()
	_, err := etcdserverpb.NewKVClient(conn).Range(short, &etcdserverpb.RangeRequest{Key: []byte(t.prefix + keyTable), Serializable: true}, grpc.WaitForReady(false))
	if err == nil || short.Err() != nil {
		return cause
	}
	text := strings.Join(strings.Fields(status.Convert(err).Message()), " ")
	about := func(word string) bool { return strings.Contains(text, word) }
	if slices.ContainsFunc([]string{"handshake", "preface", "EOF", "broken pipe", "reset by peer"}, about) {
		text += ": see TLS of the client's Config, and whether the endpoints begin with http or https"
	}
	return fmt.Errorf("%w: %s", cause, text)
}
