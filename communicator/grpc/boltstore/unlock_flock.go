//go:build !windows && !plan9 && !solaris && !aix && !android

package boltstore

// Unlocking on systems on which bbolt uses flock.

import (
	"fmt"
	"os"
	"syscall"
)

// unlock releases the lock of a file that stays mapped. Closing is not enough,
// because a mapping keeps the lock.
func unlock(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_UN); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	return nil
}
