package etcd

// Values that the communicator and the members exchange, as JSON that can be read
// with etcdctl, and helpers for the transactions of both.

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// maxOps is the maximum number of operations in a transaction. Comparisons and both
// branches count, which keeps a transaction below 100 operations.
const maxOps = 99

// assignment is the value of an assigned key: the term that wrote it, and the create
// revision of the member's key. A reader ignores an assignment to another membership
// as stale.
type assignment struct {
	Epoch  uint64 `json:"epoch"`
	Term   uint64 `json:"term"`
	Member int64  `json:"member"`
}

// claim is the value of an active key: the worker that owns the task. The claim's
// token is not stored in it, because the token is the key's create revision.
type claim struct {
	Incarnation string `json:"incarnation"`
	// Starting: the worker has not reported yet whether the task runs.
	Starting bool `json:"starting,omitempty"`
}

// refusal is the value of a refused key: the reason of the worker, and the mod
// revision of the assignment's key.
type refusal struct {
	Reason   string `json:"reason"`
	Assigned int64  `json:"assigned"`
}

// reasonBytes limits the stored length of a reason, which may be the error of any
// function.
const reasonBytes = 1000

func newRefusal(reason error, assigned int64) refusal {
	text := reason.Error()
	if len(text) > reasonBytes {
		text = strings.ToValidUTF8(text[:reasonBytes], "") + "…"
	}
	return refusal{Reason: text, Assigned: assigned}
}

// encode returns the JSON of one of the values above.
func encode[V assignment | claim | refusal | memberValue](v V) string {
	b, _ := json.Marshal(v) // numbers, strings and booleans never fail
	return string(b)
}

// decode reads one of the values above. A value that cannot be read was not written
// by this package. It counts as the zero value, so that its key is not ignored.
func decode[V assignment | claim | refusal | memberValue](b []byte) (v V) {
	if err := json.Unmarshal(b, &v); err != nil {
		return *new(V)
	}
	return v
}

// errShape reports that etcd's answer does not fit the transaction that was sent.
var errShape = errors.New("etcd's answer does not match the transaction")

// count returns the number of operations in op, nested ones included.
func count(op clientv3.Op) int {
	if !op.IsTxn() {
		return 1
	}
	compares, then, otherwise := op.Txn()
	n := len(compares)
	for _, op := range slices.Concat(then, otherwise) {
		n += count(op)
	}
	return n
}

func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

func present(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), ">", 0)
}

func found(r *etcdserverpb.ResponseOp) []*mvccpb.KeyValue { return r.GetResponseRange().GetKvs() }

// first returns the first key of a read, or nil.
func first(r *etcdserverpb.ResponseOp) *mvccpb.KeyValue {
	if kvs := r.GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}
