package main

// Counting: a task that ends. It reads a file once, and has its result on the disk
// before it completes.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
	"unicode"
)

// result is the result of counting a file.
type result struct {
	Task    string `json:"task"`
	Version int64  `json:"version"` // of the task's content; a newer one is counted again
	Worker  string `json:"worker"`
	Words   int    `json:"words"`
	Problem string `json:"problem,omitempty"` // why there is no count
}

// count counts the words of a file and records the result. If the file cannot be
// read, the error is the result, because the file would not be readable the next
// time either.
func count(ctx context.Context, file string, rate int, r result, to *results) error {
	if to.has(r) {
		return nil // counted before a crash, but the manager was not told
	}
	words, err := countFile(ctx, file, rate)
	if ctx.Err() != nil {
		return context.Cause(ctx) // not nil, so the task has not completed and runs again
	}
	r.Words = words
	if err != nil {
		r.Problem = err.Error()
	}
	return to.record(r)
}

func countFile(ctx context.Context, path string, rate int) (int, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	words, err := countWords(slowly(ctx, file, rate))
	return words, errors.Join(err, file.Close())
}

// countWords counts the words between spaces, as wc -w does.
func countWords(from io.Reader) (int, error) {
	words, inWord := 0, false
	for in := bufio.NewReader(from); ; {
		r, _, err := in.ReadRune()
		switch {
		case errors.Is(err, io.EOF):
			return words, nil
		case err != nil:
			return 0, err
		}
		if space := unicode.IsSpace(r); space == inWord {
			inWord = !space
			if inWord {
				words++
			}
		}
	}
}

// slowly returns a reader that is limited to rate bytes a second, so that there is
// something to watch, and that fails when ctx ends. A rate of 0 means no limit.
func slowly(ctx context.Context, from io.Reader, rate int) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if rate == 0 {
			return from.Read(p)
		}
		n, err := from.Read(p[:min(len(p), max(1, rate/20))])
		if n > 0 && !pause(ctx, time.Duration(n)*time.Second/time.Duration(rate)) {
			return 0, context.Cause(ctx)
		}
		return n, err
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

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

// results is the record of a worker's results, in its own file. The methods may be
// called from many goroutines.
type results struct {
	mu      sync.Mutex // guards the fields below
	journal *journal[result]
	known   map[subject]bool
}

// subject identifies what is counted once.
type subject struct {
	task    string
	version int64
}

func openResults(path string) (*results, error) {
	j, before, err := openJournal[result](path)
	if err != nil {
		return nil, err
	}
	r := &results{journal: j, known: make(map[subject]bool, len(before))}
	for _, b := range before {
		r.known[subject{b.Task, b.Version}] = true
	}
	return r, nil
}

func (r *results) has(one result) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[subject{one.Task, one.Version}]
}

// record returns when the result is on the disk.
func (r *results) record(one result) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.journal.append(one); err != nil {
		return err
	}
	r.known[subject{one.Task, one.Version}] = true
	return nil
}

func (r *results) close() error { return r.journal.close() }

// gather returns the newest result of each task from the records of all workers. A
// task was counted twice if its worker crashed before it could report the
// completion. The results must then agree.
func gather(pattern string) (map[string]result, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	all := make(map[string]result)
	for _, path := range paths {
		results, _, err := readEntries[result](path)
		if err != nil {
			return nil, err
		}
		for _, r := range results {
			other, again := all[r.Task]
			switch {
			case !again || other.Version < r.Version:
				all[r.Task] = r
			case other.Version == r.Version && (other.Words != r.Words || other.Problem != r.Problem):
				return nil, fmt.Errorf("%s: %d words by %s, but %d by %s: was the file changed?",
					r.Task, other.Words, other.Worker, r.Words, r.Worker)
			}
		}
	}
	return all, nil
}
