package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/f8949c05/orchestrator/internal/ascii"
	"github.com/f8949c05/orchestrator/replica"
)

// Table is a [replica.Backend] and a [replica.Waiter] in a database. It is safe for concurrent use.
type Table struct {
	name   string
	log    *slog.Logger
	config *pgxpool.Config
	calls  *pgxpool.Pool // of which one connection is used at a time
	err    error         // of New
	listen listener

	mu     sync.Mutex       // guards the fields below
	schema string           // quoted; "": not known yet
	known  map[uint64]known // by ID
	newest known            // the last Server, and its latest revision
}

// known is what a Table was answered for an ID: what the server must still have.
type known struct {
	Server    string
	Revision  uint64
	Heartbeat uint64 // of the last Sync

	member replica.Member // as that Sync has published it, but for heartbeat and epoch
}

// update is what the database is sent for a Sync.
type update struct {
	replica.Update
	Acked known
	Check bool   // look at all orders and tasks: some are missed
	News  bool   // the record is not as known
	Seen  uint64 // the highest number of those in it that are to be believed
}

// answer is what the database returns: a replica.View, whose records are read one by one.
type answer struct {
	replica.View
	Evicted  bool
	Number   uint64 // of the revision
	Members  map[uint64]json.RawMessage
	Orders   []json.RawMessage
	Tasks    []json.RawMessage
	Reports  map[uint64]json.RawMessage
	Requests map[string]map[string]replica.Ask // by verb and target
}

// syncs is the statement of a Sync, see schema.sql.
const syncs = "call %s.replica_sync_1($1, $2, $3, null)"

// Sync is that of replica.Backend.
func (t *Table) Sync(ctx context.Context, u replica.Update) (v replica.View, err error) {
	t.mu.Lock()
	was := t.known[u.Self]
	if was.Server == "" || was.Server == t.newest.Server { // what an earlier ID was shown counts too
		was.Server, was.Revision = t.newest.Server, t.newest.Revision
	}
	t.mu.Unlock()
	now := known{Heartbeat: u.Member.Heartbeat, member: u.Member}
	now.member.Heartbeat, now.member.Epoch = 0, 0
	p := ascii.Map(update{Update: u, Acked: was}, ascii.Escape)
	p.News = !reflect.DeepEqual(now.member, was.member)
	if u.Member.Epoch < replica.MaxSeen {
		p.Seen = u.Member.Epoch
	}
	if u.Report != nil && u.Report.Applied < replica.MaxSeen {
		p.Seen = max(p.Seen, u.Report.Applied)
	}
	var a *answer
	if !p.News && u.Server == was.Server && u.Batch == nil && u.Campaign == 0 && !u.Confirm && len(u.Left)+len(u.Asks) == 0 {
		a, err = t.call(ctx, "call %s.replica_beat_1($1, $2, $3, null)", p, patience(ctx)) // without a lock
	}
	for _, check := range []bool{false, true} {
		if p.Check = check; err == nil && a == nil {
			a, err = t.call(ctx, syncs, p, patience(ctx))
		}
	}
	v, err = t.view(a, err, u.Self, &now)
	v.Failed = make([]string, len(u.Asks))
	for i, ask := range u.Asks {
		if !slices.Contains([]string{"drain", "undrain", "hold", "release", "restart"}, ask.Verb) {
			v.Failed[i] = fmt.Sprintf("the verb %q is unknown", ask.Verb)
		}
	}
	return v, err
}

// Read is that of replica.Backend.
func (t *Table) Read(ctx context.Context, q replica.Query) (replica.View, error) {
	a, err := t.call(ctx, "select %s.replica_view_1($1, $2)", ascii.Map(q, ascii.Escape))
	if err == nil && a == nil { // a Sync makes the table, or finds what is lost. It publishes nothing
		a, err = t.call(ctx, syncs, update{Update: replica.Update{Query: q}, Check: true}, patience(ctx))
	}
	return t.view(a, err, q.Self, nil)
}

// patience returns how many milliseconds a Sync may wait for a lock: half of what its context
// leaves, at most two seconds. The server must answer before the context ends, because pgx
// then closes the connection, and on a new one PostgreSQL plans each statement anew.
func patience(ctx context.Context) int64 {
	longest := 2 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		longest = min(longest, time.Until(deadline)/2)
	}
	return max(longest.Milliseconds(), 1)
}

// view returns an answer for an ID as a View, and remembers what it shows. synced is what a Sync
// has published. A member whose record cannot be read gets no tasks.
func (t *Table) view(a *answer, err error, id uint64, synced *known) (replica.View, error) {
	switch {
	case err != nil:
	case a == nil:
		err = errors.New("orders or tasks were deleted during the call")
	case a.Evicted:
		err = replica.ErrEvicted
	default:
		err = t.remember(a, id, synced)
	}
	if err != nil {
		return replica.View{}, fmt.Errorf("table %.100q: %w", t.name, err)
	}
	v := a.View
	v.Orders, v.Tasks = each[replica.Order](a.Orders), each[replica.Task](a.Tasks)
	for id, raw := range a.Members {
		m, err := decode[replica.Member](raw)
		if err != nil || m.ID != id {
			m = replica.Member{ID: id, Lease: replica.MaxLease, Draining: true, Role: replica.CandidateOnly}
		}
		v.Members = append(v.Members, m)
	}
	v.Reports = make(map[uint64]replica.Report, len(a.Reports))
	for id, raw := range a.Reports {
		r, err := decode[replica.Report](raw)
		if err != nil || string(raw) == "null" {
			r = replica.Report{Applied: replica.MaxSeen}
		}
		v.Reports[id] = r
	}
	v.Drains, v.Restarts = ascii.Map(a.Requests["drain"], ascii.Unescape), ascii.Map(a.Requests["restart"], ascii.Unescape)
	if hold, ok := a.Requests["hold"][""]; ok {
		hold = ascii.Map(hold, ascii.Unescape)
		v.Hold = &hold
	}
	return v, nil
}

// remember keeps what an answer shows to an ID. It returns an error if the answer is older than
// one before, as that of a standby may be.
func (t *Table) remember(a *answer, id uint64, synced *known) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.known[id]
	if a.Server != was.Server {
		was = known{Server: a.Server}
	}
	beat, ok := a.Beats[id]
	if a.Number < was.Revision || ok && beat < was.Heartbeat {
		return fmt.Errorf("the server is behind: it shows revision %d and heartbeat %d after %d and %d", a.Number, beat, was.Revision, was.Heartbeat)
	}
	was.Revision = a.Number
	if synced != nil && beat == synced.Heartbeat {
		was.Heartbeat, was.member = beat, synced.member
	}
	t.known[id] = was
	if was.Server != t.newest.Server || was.Revision > t.newest.Revision {
		t.newest = known{Server: was.Server, Revision: was.Revision}
	}
	return nil
}

// decode returns a record, whose texts are escaped. One that cannot be read is an error.
func decode[T any](text json.RawMessage) (record T, err error) {
	err = json.Unmarshal(text, &record)
	return ascii.Map(record, ascii.Unescape), err
}

// each returns those of some records that can be read.
func each[T any](all []json.RawMessage) (records []T) {
	for _, raw := range all {
		if r, err := decode[T](raw); err == nil {
			records = append(records, r)
		}
	}
	return records
}
