package etcd

// Who a worker is.

import (
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
)

// Worker is a worker as an orchestrator knows it: a name, and which of those
// that had it. A worker that joins again, under the same name, is another
// Worker, so that no call meant for the one before can reach it.
type Worker struct {
	Name string
	// Incarnation rises with each worker that joins: it is the revision at which
	// its membership began.
	Incarnation int64
}

// String returns the name.
func (w Worker) String() string { return w.Name }

// MarshalText returns the name, which is also how a Worker is shown in JSON.
func (w Worker) MarshalText() ([]byte, error) { return []byte(w.Name), nil }

// maxName is how long a name may be. Escaped it is up to three times as long,
// and a key may hold two.
const maxName = 1024

func checkName(what, name string) error {
	if name == "" {
		return fmt.Errorf("%w: a %s without a name", orchestrator.ErrInvalid, what)
	}
	if len(name) > maxName {
		return fmt.Errorf("%w: a %s name of %d bytes: at most %d", orchestrator.ErrInvalid, what, len(name), maxName)
	}
	return nil
}

// ended translates what a mirror ended with.
func ended(err error) error {
	if errors.Is(err, mirror.ErrCluster) {
		return fmt.Errorf("%w (%w)", ErrClusterChanged, err)
	}
	return err
}
