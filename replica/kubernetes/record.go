package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator/internal/ascii"
	"github.com/f8949c05/orchestrator/replica"
)

// Labels by which the Leases of a table are selected, and annotations with its records.
const (
	labelTable = "orchestrator/table"
	labelKind  = "orchestrator/kind"
	labelID    = "orchestrator/id"

	keyRecord = "orchestrator/record" // tableRecord, replica.Member, ordersRecord or tasksRecord
	keyReport = "orchestrator/report" // reportRecord, in the Lease of a member
	keyGone   = "orchestrator/gone"   // why a member is removed
)

// What a Lease holds: the value of a label.
const (
	kindTable  = "table"
	kindMember = "member"
	kindOrders = "orders"
	kindTasks  = "tasks"
)

const (
	// format is that of all records. No other one is read.
	format = "replica 1"
	// maxRecord is the size of a record in bytes. All annotations of an object have 256 KiB.
	maxRecord = 250 << 10
	// maxTask is the size of a task of the list in force.
	maxTask = 8 << 10
)

// names makes and reads the names of the Leases of a table.
type names struct {
	table   string
	pattern *regexp.Regexp
}

// namesOf returns the names for a table. A name that no label may have is replaced by a hash, after
// those of its characters that a label may have.
func namesOf(table string) names {
	kept := regexp.MustCompile(`[^a-z0-9-]+`).ReplaceAllString(table, "")
	if kept != table || strings.Trim(kept, "-") != table || table == "" || len(table) > 63 {
		sum := sha256.Sum256([]byte(table))
		kept = strings.TrimLeft(kept[:min(len(kept), 30)]+"-"+hex.EncodeToString(sum[:8]), "-")
	}
	return names{kept, regexp.MustCompile(`^` + kept + `(?:-tasks-([0-9]{1,9})|-([0-9a-f]{16})(-orders)?)?$`)}
}

func (n names) member(id uint64) string { return fmt.Sprintf("%s-%016x", n.table, id) }
func (n names) orders(id uint64) string { return n.member(id) + "-orders" }
func (n names) tasks(i uint64) string   { return fmt.Sprintf("%s-tasks-%d", n.table, i) }

// parse returns what the Lease of a name holds, and of which member, or which part of the list of
// tasks it is; "": it is no Lease of this table.
func (n names) parse(name string) (kind string, id uint64) {
	switch m := n.pattern.FindStringSubmatch(name); {
	case m == nil:
		return "", 0
	case m[1] != "":
		id, _ = strconv.ParseUint(m[1], 10, 64)
		return kindTasks, id
	case m[2] == "":
		return kindTable, 0
	default:
		id, _ = strconv.ParseUint(m[2], 16, 64)
		if m[3] != "" {
			return kindOrders, id
		}
		return kindMember, id
	}
}

// tableRecord is the table's own record.
type tableRecord struct {
	Format    string        `json:"format"`
	Table     string        `json:"table"` // the name, as it was given
	Server    string        `json:"server"`
	Confirmed bool          `json:"confirmed"`
	Listed    bool          `json:"listed"`
	Epoch     uint64        `json:"epoch,string"`
	Leader    uint64        `json:"leader,string"`
	Name      string        `json:"name"`        // the leader's
	Beat      uint64        `json:"beat,string"` // the leader's heartbeat
	Lease     time.Duration `json:"lease_ns"`    // the longest there was
	Parts     uint64        `json:"parts"`       // Leases of the list of tasks

	Drains   map[string]replica.Ask `json:"drains,omitempty"`
	Hold     *replica.Ask           `json:"hold,omitempty"`
	Restarts map[string]replica.Ask `json:"restarts,omitempty"`
}

// verbs are what operators may ask for.
var verbs = []string{"drain", "undrain", "hold", "release", "restart"}

// ask carries out requests of operators, and forgets those to restart tasks that were restarted.
func (r *tableRecord) ask(asks []replica.Ask, restarted []string) {
	drains, restarts := map[string]replica.Ask{}, map[string]replica.Ask{}
	maps.Copy(drains, r.Drains)
	maps.Copy(restarts, r.Restarts)
	for _, a := range asks {
		switch a.Verb {
		case "drain":
			drains[a.Target] = a
		case "undrain":
			delete(drains, a.Target)
		case "hold":
			r.Hold = &a
		case "release":
			r.Hold = nil
		case "restart":
			restarts[a.Target] = a
		}
	}
	for _, task := range restarted {
		delete(restarts, task)
	}
	r.Drains, r.Restarts = drains, restarts
}

// reportRecord is what a member runs.
type reportRecord struct {
	Server    string `json:"server"`           // of which the report is
	Reading   string `json:"reading"`          // that of the orders from which it was made
	Heartbeat uint64 `json:"heartbeat,string"` // of the Sync that stored it
	replica.Report
}

// writer says which batch wrote a record of a leader. A batch of an earlier epoch does not replace it
// (O5), nor does an earlier batch.
type writer struct {
	Epoch   uint64 `json:"epoch,string"`
	Version uint64 `json:"version,string"`
}

// tasksRecord is a part of the list in force.
type tasksRecord struct {
	writer
	Tasks []replica.Task `json:"tasks"`
}

// ordersRecord is the orders of a member. Reading is drawn anew when the record is made, or replaces
// one that was changed by hand.
type ordersRecord struct {
	writer
	Reading string            `json:"reading"`
	Orders  map[string]string `json:"orders"` // by task
}

// orderFormat is that of an order: its epoch, the number of its batch in it, whether it is to run (1),
// Input and Generation.
const orderFormat = "%d+%d %d %d %d"

// with returns the record after a batch.
func (r ordersRecord) with(w writer, set, drop []replica.Order) ordersRecord {
	r.writer, r.Orders = w, maps.Clone(r.Orders)
	if r.Orders == nil {
		r.Orders = make(map[string]string)
	}
	for _, o := range drop {
		delete(r.Orders, o.Task)
	}
	for _, o := range set {
		run := 1
		if o.Stop {
			run = 0
		}
		r.Orders[o.Task] = fmt.Sprintf(orderFormat, o.Epoch, o.Version-o.Epoch, run, o.Input, o.Generation)
	}
	return r
}

// of returns the orders for a member, and how many of them are to run.
func (r *ordersRecord) of(member uint64) (all []replica.Order, toRun int) {
	for task, text := range r.Orders {
		o, run := replica.Order{Member: member, Task: task}, 0
		if _, err := fmt.Sscanf(text, orderFormat, &o.Epoch, &o.Version, &run, &o.Input, &o.Generation); err != nil {
			continue // encode has not written it
		}
		o.Version, o.Stop = o.Version+o.Epoch, run == 0
		all, toRun = append(all, o), toRun+run
	}
	return all, toRun
}

// encode returns the annotation of a record. Its last field is a sum, which a change by hand makes
// wrong.
func encode(record any) (string, error) {
	text, err := json.Marshal(ascii.Map(record, ascii.Escape))
	return sealed(strings.TrimSuffix(string(text), "}")), err
}

func sealed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf(`%s,"sum":"%x"}`, text, sum[:6])
}

// decode returns the record of an annotation, and whether it is as encode returned it.
func decode[T any](text string) (record T, genuine bool) {
	body, _, _ := strings.Cut(text, `,"sum":"`)
	if sealed(body) != text || json.Unmarshal([]byte(text), &record) != nil {
		return *new(T), false
	}
	return ascii.Map(record, ascii.Unescape), true
}
