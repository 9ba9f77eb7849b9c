package main

// The tasks: their names and contents, and the files to count.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
)

// The two kinds of tasks. The name of a task begins with its kind.
const (
	kindCount  = "count/"
	kindFollow = "follow/"
)

// content is the content of a task: everything that a worker must know besides the
// name.
type content struct {
	File string `json:"file"`
	Rate int    `json:"rate,omitempty"` // for counting, in bytes a second; 0: no limit
	To   string `json:"to,omitempty"`   // for following: the file of the followed lines
}

// item returns the task for the manager.
func (c content) item(name string) (manager.Item, error) {
	text, err := json.Marshal(c)
	return manager.Item{Name: name, Content: text}, err
}

func decodeContent(text []byte) (content, error) {
	var c content
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("content %q: %w", text, err)
	}
	if c.File == "" {
		return c, fmt.Errorf("content %q: no file", text)
	}
	return c, nil
}

// document is a file to count.
type document struct {
	name string // relative to the folder, with slashes
	path string
	size int64
}

// documents returns the text files in a folder and its subfolders, without hidden
// ones, sorted by name. The default folder is this project's repository, of which it
// returns the Markdown files.
func documents(folder string) ([]document, error) {
	accept := isText
	if folder == "" {
		if err := inRepository(); err != nil {
			return nil, err
		}
		folder = "."
		accept = func(p string) bool { return path.Ext(p) == ".md" }
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	var all []document
	err = fs.WalkDir(os.DirFS(folder), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p != "." && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !d.Type().IsRegular():
			return nil
		}
		file := filepath.Join(folder, filepath.FromSlash(p))
		if !accept(file) {
			return nil
		}
		if !utf8.ValidString(p) {
			return fmt.Errorf("%q: file name is not UTF-8, as the JSON of contents and results requires", file)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all = append(all, document{name: p, path: file, size: info.Size()})
		return nil
	})
	if failure, ok := errors.AsType[*fs.PathError](err); ok {
		err = fmt.Errorf("%s: %w", filepath.Join(folder, filepath.FromSlash(failure.Path)), failure.Err)
	}
	if err != nil {
		return nil, fmt.Errorf("-dir: %w", err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("-dir: no text files in %s", folder)
	}
	slices.SortFunc(all, func(a, b document) int { return cmp.Compare(a.name, b.name) })
	return all, nil
}

// inRepository returns an error if the current folder is not the root of this
// project's repository.
func inRepository() error {
	text, err := os.ReadFile("go.mod")
	if err == nil && bytes.HasPrefix(text, []byte("module github.com/f8949c05/orchestrator\n")) {
		return nil
	}
	folder, err := os.Getwd()
	return errors.Join(fmt.Errorf("%s is not the root of the orchestrator's repository, whose documents are counted by default: "+
		"go there, or give a folder with -dir", folder), err)
}

// isText reports whether a file begins like text. It returns true for a file that
// cannot be read, so that a worker reports the error.
func isText(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return true
	}
	defer func() { _ = file.Close() }()
	head := make([]byte, 512)
	n, err := io.ReadFull(file, head)
	head = head[:n]
	if err == nil { // the file is longer, and its last character here may be incomplete
		for i := 1; i < utf8.UTFMax && !utf8.Valid(head); i++ {
			head = head[:n-i]
		}
	}
	return utf8.Valid(head) && bytes.IndexByte(head, 0) < 0
}
