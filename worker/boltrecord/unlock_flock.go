//go:build !windows && !plan9 && !solaris && !aix && !android

package boltrecord

// How a file is unlocked where bbolt locks it by flock.

import (
	"fmt"
	"os"
	"syscall"
)

// unlock frees the lock of a file that stays mapped: a mapping keeps it.
func unlock(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_UN); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	return nil
}
