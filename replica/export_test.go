package replica

// Kill ends a replica as kill -9 does: it makes no further call.
func (r *Replica) Kill() { close(r.killed) }
