package grpc

// Worker identifies one incarnation of a named worker. A worker that was restarted,
// or has lost its lease, is another Worker, so no call meant for the previous
// incarnation reaches it.
type Worker struct {
	Name string
	// Incarnation is unique to the process and its lease; see
	// worker.Worker.Incarnation.
	Incarnation uint64
}

// String returns the name.
func (w Worker) String() string { return w.Name }

// MarshalText returns the name, which also represents a Worker in JSON.
func (w Worker) MarshalText() ([]byte, error) { return []byte(w.Name), nil }
