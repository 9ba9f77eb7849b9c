package postgres

// RollBackServer makes the next Sync tell the server a transaction that it has not reached,
// as after a restored disk.
func (t *Table) RollBackServer() { t.last.Transaction += 1 << 30 }

// NewWithSchema is New with another text in place of the schema.
func NewWithSchema(t *Table, schema string) *Table { t.schema = schema; return t }

// WithLimits sets how many rows and bytes a query may return.
func WithLimits(rows, bytes int) QueryOption {
	return func(q *query) { q.maxRows, q.maxBytes = rows, bytes }
}
