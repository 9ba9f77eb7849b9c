package main

// Following: a task that ends only when it is stopped. It reads lines that are added
// to a file, as tail -f does, and records its position, so that the next worker
// continues from there. The files here grow by themselves.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/worker"
)

const (
	pollEvery = 50 * time.Millisecond
	maxBatch  = 1000 // lines recorded together
)

// followed is the record of a line. The last record is also the position to continue
// from. The result and the position are written in one step, so that no crash can
// separate them.
type followed struct {
	Line   int    `json:"line"` // from 1
	End    int64  `json:"end"`  // offset of the next line
	Worker string `json:"worker"`
}

// follow follows a file until ctx ends.
func follow(ctx context.Context, path, to, by string) (err error) {
	j, before, err := openJournal[followed](to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.close()) }()
	var last followed
	if len(before) > 0 {
		last = before[len(before)-1]
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(last.End, io.SeekStart); err != nil {
		return err
	}

	var line []byte // the part of it that was read
	for in := bufio.NewReader(file); ; {
		var batch []followed
		for len(batch) < maxBatch {
			more, err := in.ReadBytes('\n')
			line = append(line, more...)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			last = followed{Line: last.Line + 1, End: last.End + int64(len(line)), Worker: by}
			batch = append(batch, last)
			line = line[:0]
		}
		if len(batch) > 0 {
			// Check, just before the write, that the task may still run here. A process
			// that was suspended learns here first that it may not.
			if err := worker.Check(ctx); err != nil {
				return err
			}
			if err := j.append(batch...); err != nil {
				return err
			}
		}
		if len(batch) < maxBatch && !pause(ctx, pollEvery) {
			return context.Cause(ctx)
		}
	}
}

// growth is a set of growing files.
type growth struct {
	files []*growing
	stop  func() error // returns when they no longer grow; may be called again
}

// growing is a growing file.
type growing struct {
	name  string
	file  *os.File
	lines int
}

// startGrowth creates empty files and adds lines to each of them until stop is
// called.
func startGrowth(f folder, names []string, every time.Duration) (*growth, error) {
	g := &growth{}
	for _, name := range names {
		file, err := os.OpenFile(f.log(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, errors.Join(err, g.close())
		}
		g.files = append(g.files, &growing{name: name, file: file})
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.grow(ctx, every) }()
	g.stop = sync.OnceValue(func() error {
		end()
		return errors.Join(<-ended, g.close())
	})
	return g, nil
}

func (g *growth) grow(ctx context.Context, every time.Duration) error {
	for {
		for _, f := range g.files {
			if _, err := fmt.Fprintf(f.file, "line %d, written at %s\n", f.lines+1, time.Now().Format(time.TimeOnly)); err != nil {
				return err
			}
			f.lines++
		}
		if !pause(ctx, every) {
			return nil
		}
	}
}

func (g *growth) close() (err error) {
	for _, f := range g.files {
		err = errors.Join(err, f.file.Close())
	}
	return err
}
