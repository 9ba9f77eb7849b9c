package embed

// The data folder: one server at a time.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// ErrFolderInUse says that another server has the data folder open. The text
// names it.
var ErrFolderInUse = errors.New("another server has the data folder open")

const (
	folderPatience = 3 * time.Second // for a server that is about to end
	folderPause    = 50 * time.Millisecond
)

// takeFolder makes the folder where it is not there, and locks it until the file
// that it returns is closed. Where another server has it open, it waits a little
// for that to end.
//
// etcd has a lock too, but waits for it without an end.
func takeFolder(ctx context.Context, dir string) (*fileutil.LockedFile, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	tick := time.NewTicker(folderPause)
	defer tick.Stop()
	patience := time.NewTimer(folderPatience)
	defer patience.Stop()
	for {
		lock, err := tryFolder(dir)
		if err == nil || !errors.Is(err, ErrFolderInUse) {
			return lock, err
		}
		select {
		case <-tick.C:
		case <-patience.C:
			return nil, fmt.Errorf("%w: %s", ErrFolderInUse, dir)
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %s: %w", ErrFolderInUse, dir, context.Cause(ctx))
		}
	}
}

func tryFolder(dir string) (*fileutil.LockedFile, error) {
	// A file of this package's own is held from here on, so that of two servers
	// that start at once, on a folder that is empty yet, one is refused.
	lock, err := fileutil.TryLockFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, ErrFolderInUse
	}
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	if serving(dir) {
		return nil, errors.Join(ErrFolderInUse, lock.Close())
	}
	return lock, nil
}

// serving reports whether an etcd has the folder open that knows nothing of our
// lock, as the one of etcd's own program. Whatever else is wrong with its files
// is for etcd to say.
func serving(dir string) bool {
	file := filepath.Join(dir, "member", "snap", "db")
	if _, err := os.Stat(file); err != nil {
		return false
	}
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, Timeout: 1}) // one attempt
	if err != nil {
		return errors.Is(err, bolterrors.ErrTimeout)
	}
	_ = db.Close()
	return false
}

// longestSocket is how long the path of a unix socket may be, on every system.
const longestSocket = 103

// peerSocket returns a path for the socket that etcd hears other servers on, in a
// folder that no other user can enter: in the data folder, or, if the path would be
// too long, in a temporary one.
func (s *Server) peerSocket(dir string) (string, error) {
	folder, err := filepath.Abs(filepath.Join(dir, "peer"))
	if err != nil {
		return "", fmt.Errorf("find the data folder: %w", err)
	}
	path := filepath.Join(folder, "socket")
	if len(path) > longestSocket {
		if folder, err = os.MkdirTemp("", "etcd-"); err != nil {
			return "", fmt.Errorf("make a folder for the peer socket: %w", err)
		}
		s.dirs = append(s.dirs, folder)
		return filepath.Join(folder, "socket"), nil
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("make a folder for the peer socket: %w", err)
	}
	if err := os.Chmod(folder, 0o700); err != nil { // it may have been there
		return "", fmt.Errorf("guard the folder of the peer socket: %w", err)
	}
	return path, nil
}

// leaveFolder gives the folder up, and removes those that were temporary.
func (s *Server) leaveFolder() error {
	var err error
	if s.lock != nil {
		err = s.lock.Close()
	}
	for _, dir := range s.dirs {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}
