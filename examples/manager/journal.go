// A journal: entries in a file, a line of JSON each, on the disk when append has
// returned. The results and the lines that were followed are kept so.

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// journal is a file that one process at a time appends to.
type journal[E any] struct {
	file *os.File
	size int64 // of what is whole
}

// openJournal opens a journal, or makes it, and returns what it holds. Half an
// entry at its end, which a crash has left, is cut off.
func openJournal[E any](path string) (*journal[E], []E, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	j := &journal[E]{file: file}
	entries, err := j.begin(path)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open %s: %w", path, err), file.Close())
	}
	return j, entries, nil
}

func (j *journal[E]) begin(path string) ([]E, error) {
	entries, size, err := readEntries[E](path)
	if err != nil {
		return nil, err
	}
	j.size = size
	if err := j.file.Truncate(size); err != nil {
		return nil, err
	}
	return entries, syncFolder(filepath.Dir(path))
}

// append adds entries, all or none of them.
func (j *journal[E]) append(entries ...E) error {
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	for _, e := range entries {
		if err := out.Encode(e); err != nil {
			return err
		}
	}
	_, err := j.file.WriteAt(text.Bytes(), j.size)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return errors.Join(err, j.file.Truncate(j.size))
	}
	j.size += int64(text.Len())
	return nil
}

func (j *journal[E]) close() error { return j.file.Close() }

// readEntries returns the entries of a journal, whoever appends to it meanwhile,
// and how many bytes they take.
func readEntries[E any](path string) ([]E, int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	var entries []E
	for line := range bytes.Lines(text) {
		var e E
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, 0, fmt.Errorf("%s:%d: %w", path, len(entries)+1, err)
		}
		entries = append(entries, e)
	}
	return entries, int64(len(text)), nil
}

// syncFolder has it on the disk that a file is there.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
