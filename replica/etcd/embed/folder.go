package embed

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

// ErrFolderInUse reports that another server uses the data folder. The text contains
// its path.
var ErrFolderInUse = errors.New("data folder in use by another server")

const (
	folderTimeout = 3 * time.Second // wait for a server that is stopping
	folderPause   = 50 * time.Millisecond
)

// takeFolder creates the folder if necessary, and locks it until the returned file
// is closed. If another server uses it, takeFolder waits for folderTimeout.
//
// etcd has its own lock, but waits for it without limit.
func takeFolder(ctx context.Context, dir string) (*fileutil.LockedFile, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	tick := time.NewTicker(folderPause)
	defer tick.Stop()
	timeout := time.NewTimer(folderTimeout)
	defer timeout.Stop()
	for {
		lock, err := tryFolder(dir)
		if err == nil || !errors.Is(err, ErrFolderInUse) {
			return lock, err
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			return nil, fmt.Errorf("%w: %s", ErrFolderInUse, dir)
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %s: %w", ErrFolderInUse, dir, context.Cause(ctx))
		}
	}
}

func tryFolder(dir string) (*fileutil.LockedFile, error) {
	// Take a separate lock first. If two servers start at the same time on an empty
	// folder, it refuses one.
	lock, err := fileutil.TryLockFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, ErrFolderInUse
	}
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	if serving(dir) {
		return nil, errors.Join(ErrFolderInUse, lock.Close())
	}
	return lock, nil
}

// serving reports whether another etcd without our lock has opened the folder, such
// as etcd's own binary. Other problems with its files are left to etcd.
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

// longestSocket is the maximum length of a unix socket's path on every system.
const longestSocket = 103

// peerSocket returns a path for etcd's peer socket, in a folder that no other user
// can enter. The folder is in the data folder, or a temporary one if the path would
// be too long.
func (s *Server) peerSocket(dir string) (string, error) {
	folder, err := filepath.Abs(filepath.Join(dir, "peer"))
	if err != nil {
		return "", fmt.Errorf("find data folder: %w", err)
	}
	path := filepath.Join(folder, "socket")
	if len(path) > longestSocket {
		if folder, err = os.MkdirTemp("", "etcd-"); err != nil {
			return "", fmt.Errorf("create folder of peer socket: %w", err)
		}
		s.dirs = append(s.dirs, folder)
		return filepath.Join(folder, "socket"), nil
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("create folder of peer socket: %w", err)
	}
	if err := os.Chmod(folder, 0o700); err != nil { // the folder may have existed
		return "", fmt.Errorf("restrict folder of peer socket: %w", err)
	}
	return path, nil
}

// leaveFolder unlocks the data folder, and removes temporary folders.
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
