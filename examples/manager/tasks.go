package main

// The tasks. A task may be stopped at any point, and run again on another worker.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/worker"
)

// The name of a task begins with its kind.
const (
	countPrefix  = "count/"
	followPrefix = "follow/"
)

// perLine slows counting down, so that there is something to watch.
const perLine = 50 * time.Millisecond

// content is the content of a task: everything that a worker must know besides the
// name.
type content struct {
	From string `json:"from"` // the file to read
	To   string `json:"to"`   // the file to write
}

// item returns the task of this name for the manager.
func (c content) item(name string) manager.Item {
	text, _ := json.Marshal(c) // strings never fail
	return manager.Item{Name: name, Content: text}
}

func decode(text []byte) (content, error) {
	var c content
	err := json.Unmarshal(text, &c)
	if err == nil && (c.From == "" || c.To == "") {
		err = errors.New("from and to are required")
	}
	if err != nil {
		return c, fmt.Errorf("content %q: %w", text, err)
	}
	return c, nil
}

// runTask is the function of every task.
func runTask(ctx context.Context, task string) error {
	text, _ := worker.Content(ctx)
	c, err := decode(text)
	if err != nil {
		return err
	}
	if strings.HasPrefix(task, countPrefix) {
		return count(ctx, c)
	}
	return follow(ctx, c)
}

// count counts the words of a file. The result is on the disk before count returns nil:
// the task then counts as completed, and does not run again. If it is stopped earlier,
// it returns an error, so that it runs again from the beginning.
func count(ctx context.Context, c content) error {
	file, err := os.Open(c.From)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	words := 0
	in := bufio.NewScanner(file)
	for in.Scan() {
		words += len(strings.Fields(in.Text()))
		if !pause(ctx, perLine) {
			return context.Cause(ctx)
		}
	}
	if err := in.Err(); err != nil {
		return err
	}
	return write(ctx, c.To, strconv.Itoa(words))
}

// write replaces a file as a whole.
func write(ctx context.Context, path, text string) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	// Check, right before the effect, that the task may still run here. A process that
	// was suspended learns here first that it may not.
	if err := worker.Check(ctx); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// follow appends to a file what is appended to another, until ctx ends. The length of
// the first is the position in the second. So the effect and the position are one
// write, which no crash can separate, and the next run continues from there.
func follow(ctx context.Context, c content) (err error) {
	worker.Movable(ctx) // although it runs and has not completed
	from, err := os.Open(c.From)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(c.To, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	position, err := to.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	for buffer := make([]byte, 64<<10); ; {
		n, err := from.ReadAt(buffer, position)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 {
			if !pause(ctx, lookEvery) {
				return context.Cause(ctx)
			}
			continue
		}
		if err := worker.Check(ctx); err != nil { // see write
			return err
		}
		n, err = to.Write(buffer[:n])
		position += int64(n)
		if err := errors.Join(err, to.Sync()); err != nil {
			return err
		}
	}
}

// pause waits for d. It returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
