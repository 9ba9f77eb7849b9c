package history

// Disk is a file system in which writes may fail.
type Disk interface {
	// Write is called before n bytes are written. Of these, only the first that it returns
	// are written if it returns an error.
	Write(n int) (written int, err error)
	Truncate() error
}

// WithDisk passes the writes of a ring's log to d first.
func WithDisk(d Disk) Option {
	return func(c *config) error {
		c.openFile = func(path string) (file, int64, error) {
			f, size, err := openFile(path)
			return testFile{f, d}, size, err
		}
		return nil
	}
}

// WithQueue bounds the queue of a ring's log.
func WithQueue(n int) Option {
	return func(c *config) error {
		c.queue = n
		return nil
	}
}

type testFile struct {
	file
	d Disk
}

func (f testFile) Write(data []byte) (int, error) {
	n, err := f.d.Write(len(data))
	if err == nil {
		return f.file.Write(data)
	}
	if _, err := f.file.Write(data[:n]); err != nil {
		return 0, err
	}
	return n, err
}

func (f testFile) Truncate(size int64) error {
	if err := f.d.Truncate(); err != nil {
		return err
	}
	return f.file.Truncate(size)
}

// Put records a term.
func (r *Ring) Put(t *Term, rows ...WorkerRow) { r.record(t, rows) }

// Kept returns the numbers of workers and of removals that the ring keeps.
func (r *Ring) Kept() (workers, removals int) { return len(r.workers), len(r.gone) }

// Shown returns the term without what depends on the ring that has it.
func (t *Term) Shown() Term {
	c := *t
	c.seq = 0
	return c
}

// The bounds that tests need.
const (
	KeptChanges = keptChanges
	KeptPoints  = keptPoints
	KeptGone    = keptGone
)
