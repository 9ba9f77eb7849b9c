package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Intercept replaces reads and transactions of a client, for the tests of both
// packages. A nil function passes them on to KV.
type Intercept struct {
	clientv3.KV
	OnGet func(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error)
	OnTxn func(ctx context.Context, txn *Txn) (*clientv3.TxnResponse, error)
}

// NewIntercept makes the reads and transactions of a client pass the Intercept that
// it returns.
func NewIntercept(c *clientv3.Client) *Intercept {
	i := &Intercept{KV: c.KV}
	c.KV = i
	return i
}

// Get implements clientv3.KV.
func (i *Intercept) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if i.OnGet == nil {
		return i.KV.Get(ctx, key, opts...)
	}
	return i.OnGet(ctx, key, opts...)
}

// Txn implements clientv3.KV.
func (i *Intercept) Txn(ctx context.Context) clientv3.Txn { return &Txn{intercept: i, ctx: ctx} }

// Txn is a transaction that has been put together, and may be made several times.
type Txn struct {
	Compares            []clientv3.Cmp
	Success, Otherwises []clientv3.Op

	intercept *Intercept
	ctx       context.Context
}

// If implements clientv3.Txn.
func (t *Txn) If(cs ...clientv3.Cmp) clientv3.Txn { t.Compares = cs; return t }

// Then implements clientv3.Txn.
func (t *Txn) Then(ops ...clientv3.Op) clientv3.Txn { t.Success = ops; return t }

// Else implements clientv3.Txn.
func (t *Txn) Else(ops ...clientv3.Op) clientv3.Txn { t.Otherwises = ops; return t }

// Commit passes the transaction to OnTxn.
func (t *Txn) Commit() (*clientv3.TxnResponse, error) {
	if t.intercept.OnTxn == nil {
		return t.Make(t.ctx)
	}
	return t.intercept.OnTxn(t.ctx, t)
}

// Make makes the transaction at etcd.
func (t *Txn) Make(ctx context.Context) (*clientv3.TxnResponse, error) {
	return t.intercept.KV.Txn(ctx).If(t.Compares...).Then(t.Success...).Else(t.Otherwises...).Commit()
}
