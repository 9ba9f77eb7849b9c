//go:build windows || plan9 || solaris || aix || android

package boltfile

import "os"

// unlock does nothing: without flock, closing a file releases bbolt's lock, even if
// the file stays mapped.
func unlock(*os.File) error { return nil }
