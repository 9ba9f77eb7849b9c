package main

// A journal: entries in a file, one line of JSON each, which are on the disk when
// append has returned. It holds the results and the records of followed lines.

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
	size int64 // of the complete entries
}

// openJournal opens or creates a journal, and returns its entries. It removes an
// incomplete entry at the end, which a crash has left.
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

// readEntries returns the complete entries of a journal, and their length in bytes.
// Another process may append to the journal at the same time.
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

// syncFolder writes the folder's list of files to the disk.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
