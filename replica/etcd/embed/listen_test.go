package embed_test

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

// listening returns the local addresses on which this process listens for TCP, in
// the kernel's notation.
func listening(t *testing.T) (addresses []string) {
	t.Helper()
	own := make(map[string]bool)
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc on this system")
	}
	for _, f := range files {
		target, _ := os.Readlink(filepath.Join("/proc/self/fd", f.Name()))
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			own[strings.TrimSuffix(inode, "]")] = true
		}
	}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue // no IPv6
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			const listen = "0A"
			if fields := strings.Fields(lines.Text()); len(fields) > 9 && fields[3] == listen && own[fields[9]] {
				addresses = append(addresses, fields[1])
			}
		}
		require.NoError(t, f.Close())
	}
	return addresses
}

func TestE2_ListensOnTheClientPortAlone(t *testing.T) {
	for name, dir := range map[string]string{
		"a temporary folder": "",
		"a folder":           filepath.Join(t.TempDir(), "data"),
		"a long name":        filepath.Join(t.TempDir(), strings.Repeat("x", 100), "data"),
	} {
		t.Run(name, func(t *testing.T) {
			before := len(listening(t))
			s := start(t, embed.Config{Dir: dir})
			_, err := client(t, s).Put(t.Context(), "a", "b")
			require.NoError(t, err)
			require.Len(t, listening(t), before+1)
		})
	}
}

// Another user can neither enter the folder of the peer socket nor connect to it.
func TestE2_ThePeerSocketIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "peer"), 0o777)) // with wider permissions
	require.NoError(t, os.Chmod(dir, 0o755))
	start(t, embed.Config{Dir: dir})
	info, err := os.Stat(filepath.Join(dir, "peer"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	c, err := net.Dial("unix", filepath.Join(dir, "peer", "socket"))
	require.NoError(t, err, "this user can connect")
	require.NoError(t, c.Close())
}
