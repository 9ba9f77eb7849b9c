package wire

import (
	"errors"

	"github.com/f8949c05/orchestrator"
)

var (
	// ErrInvalid reports an option or an argument that is out of range. The text names it.
	// It is orchestrator.ErrInvalid.
	ErrInvalid = orchestrator.ErrInvalid

	// ErrEvicted reports that the table has removed the ID of the caller. A replica then
	// stops its tasks and joins again with another ID.
	ErrEvicted = errors.New("evicted from the table")

	// ErrForeign reports that the table belongs to another service; see [WithService].
	ErrForeign = errors.New("the table belongs to another service")

	// ErrUndrained reports that a replica has left before all of its tasks had moved.
	ErrUndrained = errors.New("left before all tasks had moved")
)
