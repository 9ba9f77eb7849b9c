package etcd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/f8949c05/orchestrator/internal/ascii"
	"github.com/f8949c05/orchestrator/replica"
)

// The keys below the prefix. Those that end in a slash are followed by an ID, or by the escaped
// name of a task.
const (
	keyTable   = "table"         // tableRecord
	keyChanged = "table/members" // the IDs that have joined, changed or gone last, for Wait
	keyEpoch   = "epoch"         // a number, for Guard
	keyBatch   = "batch"         // batchRecord
	members    = "members/"      // memberRecord
	beats      = "beats/"        // beatRecord
	reports    = "reports/"      // reportRecord
	orders     = "orders/"       // ordersRecord
	tasks      = "tasks/"        // replica.Task
	removed    = "removed/"      // removedRecord
)

// kinds are those of the keys that have an ID.
var kinds = []string{members, beats, reports, orders, removed}

// format is that of all records. No other one is read.
const format = "replica 1"

// tableRecord is the table's own record. Its revision guards everything that is written.
type tableRecord struct {
	Format    string        `json:"format"`
	Server    string        `json:"server"`
	Cluster   string        `json:"cluster"` // of the etcd in which Server was drawn
	Confirmed bool          `json:"confirmed"`
	Listed    bool          `json:"listed"`
	Epoch     uint64        `json:"epoch,string"`
	Leader    uint64        `json:"leader,string"`
	Seen      uint64        `json:"seen,string"` // the highest number in records of members
	Lease     time.Duration `json:"lease_ns"`    // the longest there was
	Asks      asks          `json:"asks,omitempty"`
}

// batchRecord is what leaders have written. By the counts a record is missed that was deleted by hand.
type batchRecord struct {
	Version uint64 `json:"version,string"` // of the last batch
	Members int    `json:"members"`        // that have orders
	Tasks   int    `json:"tasks"`
}

// memberRecord is a member without what its beat has.
type memberRecord struct {
	replica.Member
	Heartbeat *struct{} `json:"heartbeat,omitempty"`
	Epoch     *struct{} `json:"epoch,omitempty"`
}

type beatRecord struct {
	Heartbeat uint64 `json:"heartbeat,string"`
	Epoch     uint64 `json:"epoch,string"` // replica.Member.Epoch
}

type reportRecord struct {
	Heartbeat uint64 `json:"heartbeat,string"` // of the Sync that stored it
	replica.Report
}

type removedRecord struct {
	At time.Time `json:"at"`
}

// ordersRecord is all orders of a member, by task.
type ordersRecord struct {
	Orders map[string]orderRecord `json:"orders"`
}

type orderRecord struct {
	Version    uint64 `json:"version,string"`
	Stop       bool   `json:"stop,omitempty"`
	Input      int64  `json:"input,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
}

// written is the last field of each value that this package puts: how often the key was put since
// it was created, as etcd counts.
func written(times int64) string { return fmt.Sprintf(`,"written":%d}`, times) }

// genuine reports whether this package has put a value. One that was put by hand or restored has
// another number. nil is not genuine.
func genuine(kv *mvccpb.KeyValue) bool {
	return strings.HasSuffix(string(kv.GetValue()), written(kv.GetVersion()))
}

// encode returns the value of a record of a key that was put so often.
func encode(record any, times int64) (string, error) {
	text, err := json.Marshal(ascii.Map(record, escape))
	return strings.TrimSuffix(string(text), "}") + written(times), err
}

// decode returns the record of a key, and whether it is genuine.
func decode[T any](kv *mvccpb.KeyValue) (record T, ok bool) {
	err := json.Unmarshal(kv.GetValue(), &record)
	return ascii.Map(record, ascii.Unescape), err == nil && genuine(kv)
}

// decodeBeat returns a heartbeat. If it cannot be read, the revision stands for it, so that a member
// that lives is seen to move.
func decodeBeat(kv *mvccpb.KeyValue) (r beatRecord, ok bool) {
	if r, ok = decode[beatRecord](kv); r.Heartbeat == 0 {
		r.Heartbeat, ok = uint64(kv.GetModRevision()), false
	}
	return r, ok
}

// escape returns a text in characters that print.
func escape(s string) string {
	quoted := strconv.Quote(s)
	return quoted[1 : len(quoted)-1]
}

func idText(id uint64) string { return strconv.FormatUint(id, 10) }

// isOurs reports whether this package may have put a key.
func isOurs(key string) bool {
	kind, name, _ := strings.Cut(key, "/")
	_, err := strconv.ParseUint(name, 10, 64)
	return err == nil && slices.Contains(kinds, kind+"/") ||
		slices.Contains([]string{tasks, registered, contents}, kind+"/") || slices.Contains([]string{keyTable, keyChanged, keyEpoch, keyBatch}, key)
}
