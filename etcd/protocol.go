package etcd

// The values that the communicator and the members exchange. They are JSON, to
// be read with etcdctl.

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// maxOps is how many operations a transaction may have, its comparisons and
// both its branches counted together, so that it stays below a hundred.
const maxOps = 99

// assignment is the value of an assigned key: who wants it, and of whom: the
// create revision of the member's key. One of another membership than the
// reader's is stale.
type assignment struct {
	Epoch  uint64 `json:"epoch"`
	Term   uint64 `json:"term"`
	Member int64  `json:"member"`
}

// claim is the value of an active key: who has it. The claim's token is not in
// it, being the key's create revision.
type claim struct {
	Incarnation string `json:"incarnation"`
	// Starting says that the worker has not answered yet whether it runs.
	Starting bool `json:"starting,omitempty"`
}

// refusal is the value of a refused key: why the worker did not take an
// assignment, and which: the mod revision of its key.
type refusal struct {
	Reason   string `json:"reason"`
	Assigned int64  `json:"assigned"`
}

// reasonBytes bounds what is written of a reason, which may be an error of
// anyone's making.
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
	b, _ := json.Marshal(v) // numbers, texts and flags never fail to
	return string(b)
}

// decode reads one of the values above. What cannot be read was written by
// somebody else; it is taken for the zero value, so that the key still counts.
func decode[V assignment | claim | refusal | memberValue](b []byte) (v V) {
	if err := json.Unmarshal(b, &v); err != nil {
		return *new(V)
	}
	return v
}

// errShape says that etcd answered a transaction with something else than was
// asked for.
var errShape = errors.New("etcd answered another transaction than it was given")

// count returns how many operations an operation counts for.
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
