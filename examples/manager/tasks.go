// The tasks: what they are called, what a worker has to know to do them, and
// which files there are to count.

package main

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

	"github.com/f8949c05/orchestrator/communicator/grpc"
)

// The two kinds of tasks; each task's name begins with its kind.
const (
	kindCount  = "count/"
	kindFollow = "follow/"
)

// content is what a worker has to know of a task, besides its name. It travels
// with the task.
type content struct {
	File string `json:"file"`
	Rate int    `json:"rate,omitempty"` // of counting: bytes a second; 0: as fast as can be
	To   string `json:"to,omitempty"`   // of following: where to write down how far one got
}

// item returns a task, for a manager.
func (c content) item(name string) (grpc.Item, error) {
	text, err := json.Marshal(c)
	return grpc.Item{Name: name, Content: text}, err
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
	name string // below its folder, with slashes
	path string
	size int64
}

// documents returns the text files of a folder and of those in it, by name;
// what is hidden is left out. Where no folder is given, it is this project's own
// documents.
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
			return fmt.Errorf("%q: its name is not UTF-8, which is what contents and results are written in here", file)
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

// inRepository says whether this is where the project's documents are.
func inRepository() error {
	text, err := os.ReadFile("go.mod")
	if err == nil && bytes.HasPrefix(text, []byte("module github.com/f8949c05/orchestrator\n")) {
		return nil
	}
	folder, err := os.Getwd()
	return errors.Join(fmt.Errorf("%s is not the root of the orchestrator's repository, whose documents are counted by default: "+
		"go there, or name a folder with -dir", folder), err)
}

// isText reports whether a file begins like text. One that cannot be read is for a
// worker to complain about.
func isText(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return true
	}
	defer func() { _ = file.Close() }()
	head := make([]byte, 512)
	n, err := io.ReadFull(file, head)
	head = head[:n]
	if err == nil { // there is more, and a character may have been cut in two
		for i := 1; i < utf8.UTFMax && !utf8.Valid(head); i++ {
			head = head[:n-i]
		}
	}
	return utf8.Valid(head) && bytes.IndexByte(head, 0) < 0
}
