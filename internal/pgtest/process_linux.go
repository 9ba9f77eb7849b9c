package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

// crash kills the process and its children.
func (p *process) crash() {
	p.t.Helper()
	p.pause() // so that it starts no more children, and does not react to the end of one
	children := p.children()
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
	p.disarm()
	p.gone(children)
}

// removeMemory removes the shared memory of a killed server, which the kernel keeps. The server
// has noted its ID in the seventh line of a file.
func removeMemory(file string) {
	text, _ := os.ReadFile(file) // there is none after an orderly end
	lines := strings.Split(string(text)+strings.Repeat("\n", 7), "\n")
	var key, id int
	if n, _ := fmt.Sscan(lines[6], &key, &id); n == 2 {
		_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) // it may be gone
	}
}

// pause stops the process, so that it starts no more children, and then its children.
func (p *process) pause() {
	p.t.Helper()
	p.stop(p.cmd.Process.Pid)
	for _, pid := range p.children() {
		p.stop(pid)
	}
}

// stop sends SIGSTOP, and returns when the process has stopped or ended.
func (p *process) stop(pid int) {
	p.t.Helper()
	_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended
	for {
		if state, _ := stat(pid); strings.Contains("TZX", state) {
			return
		}
		<-time.After(time.Millisecond)
	}
}

// resume continues the process and its children.
func (p *process) resume() {
	p.t.Helper()
	for _, pid := range append(p.children(), p.cmd.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended
	}
}

// limit sets the size, a number of bytes or "unlimited", to which the process and its children
// may extend files.
func (p *process) limit(size string) {
	p.t.Helper()
	for i, pid := range append([]int{p.cmd.Process.Pid}, p.children()...) { // new children inherit it
		cmd := exec.Command("prlimit", fmt.Sprint("--pid=", pid), "--fsize="+size+":") // only the soft limit
		unprivileged(p.t, cmd)                                                         // root may not do this to other users
		if text, err := cmd.CombinedOutput(); err != nil && i == 0 && size != "unlimited" {
			p.t.Fatalf("limit files: %v: %s", err, text)
		}
	}
}

// gone waits until processes have ended.
func (p *process) gone(pids []int) {
	for slices.ContainsFunc(pids, func(pid int) bool {
		state, _ := stat(pid)
		return !strings.Contains("ZX", state)
	}) {
		<-time.After(time.Millisecond)
	}
}

// children returns the IDs of the child processes.
func (p *process) children() []int {
	p.t.Helper()
	processes, err := os.ReadDir("/proc")
	if err != nil {
		p.t.Fatal(err)
	}
	var pids []int
	for _, entry := range processes {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if _, parent := stat(pid); parent == p.cmd.Process.Pid {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stat returns the state of a process, a letter, and its parent. The state of a process
// that does not exist is empty.
func stat(pid int) (state string, parent int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	end := strings.LastIndex(string(text), ") ") // of the name, which may contain any character
	fields := strings.Fields(string(text[end+1:]))
	parent, err = strconv.Atoi(fields[1])
	if err != nil {
		return "", 0
	}
	return fields[0], parent
}

// prioritize lets a process and its future children run before others, as far as this user
// may. Each backend of PostgreSQL begins a session, and without systemd Linux shares the
// processors among sessions (kernel.sched_autogroup_enabled). Beside four busy loops a new
// backend answered within 119 ms in nine of ten cases, and with priority within 5 ms.
func prioritize(pid int) {
	_ = unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}, 0)
}

// tempDir returns where folders of servers are created; "" is the default of the system.
func tempDir() string {
	const memory, enough = "/dev/shm", 2 << 30
	var s unix.Statfs_t
	if unix.Statfs(memory, &s) != nil || s.Bavail*uint64(s.Bsize) < enough {
		return ""
	}
	return memory
}

// unprivileged makes a command of root run as user postgres.
func unprivileged(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if os.Getuid() == 0 {
		uid, gid := account(t)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
}

// give makes the unprivileged user the owner of a folder.
func give(t testing.TB, dir string) {
	t.Helper()
	if os.Getuid() == 0 {
		uid, gid := account(t)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
}

// account returns the IDs of user postgres.
func account(t testing.TB) (uid, gid int) {
	t.Helper()
	u, err := user.Lookup(User)
	if err != nil {
		proctest.Missing(t, debianPackage) // which adds the user
	}
	uid, err = strconv.Atoi(u.Uid)
	if err == nil {
		gid, err = strconv.Atoi(u.Gid)
	}
	if err != nil {
		t.Fatalf("user %s: %v", User, err)
	}
	return uid, gid
}
