package etcd

// Lives returns the number of IDs of which the table knows what it was answered.
func (t *Table) Lives() int { return len(t.known) }
