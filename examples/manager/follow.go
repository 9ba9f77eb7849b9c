// Following: a task that never ends by itself. It reads what is added to a file,
// as tail -f does, and writes down how far it got, so that whoever follows the
// file next goes on from there.

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/f8949c05/orchestrator/worker"
)

const (
	pollEvery = 50 * time.Millisecond
	maxBatch  = 1000 // lines written down at once
)

// followed is a line that was followed. The last one is also where to go on: what
// came of the lines and how far one got are written in one step, so that no crash
// can come between.
type followed struct {
	Line   int    `json:"line"` // from 1
	End    int64  `json:"end"`  // where the next one begins
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

	var line []byte // as far as it was written
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
			// The last thing before a write: may this still be done here? A process that
			// was suspended learns of it in this place first.
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
