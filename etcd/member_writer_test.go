package etcd

import (
	"context"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The load is written in the transaction that changes it, and alone only after a
// failed claim.
func TestE6_LoadTravelsAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		layout, err := keys.New("/work/")
		require.NoError(t, err)
		etcd := &txnLog{}
		load := 0
		w := &writer{
			client: &clientv3.Client{KV: etcd}, id: identity{layout: layout, name: "w"},
			log: defaults().logger, attempt: time.Minute, signal: make(chan struct{}, 1), written: -1,
			load: func() int { return load },
		}
		w.answer = func(e entry, _ claimResult) {
			switch {
			case e.kind == doClaim && e.task != "lost":
				load++
				w.add(entry{kind: doConfirm, task: e.task, claim: 1})
			case e.kind == doLeave:
				load--
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.run(ctx) }()
		wrote := func(txns ...string) {
			t.Helper()
			synctest.Wait()
			require.Equal(t, txns, etcd.txns)
			etcd.txns = nil
		}

		wrote("load 000000")
		w.add(entry{kind: doClaim, task: "a", basis: 1})
		wrote("txn, load 000001", "txn")
		w.add(entry{kind: doLeave, task: "a", claim: 1})
		wrote("txn, load 000000")
		w.add(entry{kind: doClaim, task: "lost", basis: 1})
		wrote("txn, load 000001", "load 000000")

		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

// txnLog is an etcd that records the operations of each transaction without making
// them.
type txnLog struct {
	clientv3.KV
	txns []string
}

func (l *txnLog) Txn(context.Context) clientv3.Txn { return &loggedTxn{log: l} }

type loggedTxn struct {
	log *txnLog
	ops []clientv3.Op
}

func (t *loggedTxn) If(...clientv3.Cmp) clientv3.Txn      { return t }
func (t *loggedTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.ops = ops; return t }
func (t *loggedTxn) Else(...clientv3.Op) clientv3.Txn     { return t }

// Commit reports success for every operation, and empty reads.
func (t *loggedTxn) Commit() (*clientv3.TxnResponse, error) {
	resp := &clientv3.TxnResponse{Header: &pb.ResponseHeader{Revision: int64(len(t.log.txns)) + 1}, Succeeded: true}
	var parts []string
	for _, op := range t.ops {
		part := "load " + string(op.ValueBytes())
		if op.IsTxn() {
			part = "txn"
		}
		if op.IsDelete() {
			part = "delete " + path.Base(string(op.KeyBytes()))
		}
		parts = append(parts, part)
		resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: &pb.TxnResponse{
			Succeeded: true, Responses: []*pb.ResponseOp{{}},
		}}})
	}
	t.log.txns = append(t.log.txns, strings.Join(parts, ", "))
	return resp, nil
}
