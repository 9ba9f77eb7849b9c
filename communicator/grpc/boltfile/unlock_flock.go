//go:build !windows && !plan9 && !solaris && !aix && !android

package boltfile

import (
	"fmt"
	"os"
	"syscall"
)

// unlock releases bbolt's flock of a file that stays mapped. Closing the file is not
// enough, because the mapping keeps the lock.
func unlock(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_UN); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	return nil
}
