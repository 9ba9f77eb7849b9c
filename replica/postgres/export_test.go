package postgres

// Text is that of schema.sql.
var Text = text

// RollBackServer makes the next Sync tell the server a revision that it has not reached, as
// after a restored disk.
func (t *Table) RollBackServer(id uint64) {
	k := t.known[id]
	k.Revision += 1 << 30
	t.known[id] = k
	t.newest.Revision = k.Revision
}
