package etcd

import (
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
)

// Worker identifies one membership of a named worker. A worker that rejoins under
// the same name is another Worker, so no call meant for an earlier membership
// reaches it.
type Worker struct {
	Name string
	// Incarnation is the revision at which the membership began. It rises with each
	// worker that joins.
	Incarnation int64
}

// String returns the name.
func (w Worker) String() string { return w.Name }

// MarshalText returns the name. JSON shows a Worker by it too.
func (w Worker) MarshalText() ([]byte, error) { return []byte(w.Name), nil }

// maxName is the maximum length of a name in bytes. Escaping may triple it, and a
// key may contain two names.
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

// ended translates the error of a mirror.
func ended(err error) error {
	if errors.Is(err, mirror.ErrCluster) {
		return fmt.Errorf("%w (%w)", ErrClusterChanged, err)
	}
	return err
}
