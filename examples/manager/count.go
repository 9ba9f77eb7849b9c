// Counting: a task that ends. It reads a file once, and has its result on the
// disk before it says that it is done.

package main

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

// result is what came of counting a file.
type result struct {
	Task    string `json:"task"`
	Version int64  `json:"version"` // of the task's content: a newer one is to be counted again
	Worker  string `json:"worker"`
	Words   int    `json:"words"`
	Problem string `json:"problem,omitempty"` // why there is no count
}

// count counts a file's words, and records how many there are. A file that cannot
// be read has that for a result: it would not be readable the next time.
func count(ctx context.Context, file string, rate int, r result, to *results) error {
	if to.has(r) {
		return nil // counted before a crash that nobody heard of
	}
	words, err := countFile(ctx, file, rate)
	if ctx.Err() != nil {
		return context.Cause(ctx) // not nil: it is not completed, and runs again
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

// countWords counts what stands between spaces, as wc -w does.
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

// slowly returns a reader of so many bytes a second that there is something to
// watch, until ctx ends; 0: as fast as can be.
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

// pause waits, and reports whether ctx let it.
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

// results is what a worker has counted, in its own file. Its methods may be
// called from many goroutines.
type results struct {
	mu      sync.Mutex // guards what follows
	journal *journal[result]
	known   map[subject]bool
}

// subject is what is counted once.
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

// gather puts together what all workers have counted: of each task the newest
// result. A task may have been counted more than once, where its worker crashed
// before it could say so; then the results have to agree.
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
				return nil, fmt.Errorf("%s: %d words say %s and %d say %s: was the file changed meanwhile?",
					r.Task, other.Words, other.Worker, r.Words, r.Worker)
			}
		}
	}
	return all, nil
}
