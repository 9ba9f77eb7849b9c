// Manager gives real work to a fleet of worker processes: first tasks that end, then
// tasks that do not.
//
//	go run ./examples/manager
//
// This process is the manager. It starts three workers as separate processes, which
// connect to it over gRPC with mutual TLS. They count the words of files, one file
// per task, two tasks at a time. Then they follow files that grow, as tail -f does,
// while one worker leaves and another joins. No file is followed by two workers at
// the same time, and no line is lost. A summary at the end shows this.
//
// The lessons: manager.go shows how to run a manager, and worker.go how to run a
// worker and how it leaves. count.go and follow.go show how to write tasks that may
// be stopped, moved and run again at any time.
//
//	-dir FOLDER     count the words of its text files (default: this project's documents)
//	-duration D     minimum duration of the run (default: 25s)
//	-data FOLDER    keep all files there (default: a temporary folder, removed at the end)
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

func main() {
	if role := stage.Role(); role != "" {
		stage.Main("manager", func(leave context.Context) error { return workerMain(leave, role) })
	}
	stage.Main("manager", func(ctx context.Context) error {
		s, err := parse(os.Args[1:])
		if err != nil {
			return err
		}
		return run(ctx, s, os.Stdout, os.Stderr)
	})
}

// settings are the command-line settings.
type settings struct {
	documents []document
	lasts     time.Duration
	data      string // empty: a temporary folder
}

func parse(args []string) (settings, error) {
	var s settings
	var dir string
	flags := flag.NewFlagSet("manager", flag.ExitOnError)
	flags.StringVar(&dir, "dir", "", "count the words of the text files in this `folder` and below (default: this project's documents)")
	flags.DurationVar(&s.lasts, "duration", 25*time.Second, "minimum duration of the run")
	flags.StringVar(&s.data, "data", "", "keep all files in this `folder`, which must not exist (default: a temporary one, removed at the end)")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case s.lasts < 0:
		return s, fmt.Errorf("-duration is %v: must not be negative", s.lasts)
	}
	var err error
	s.documents, err = documents(dir)
	return s, err
}

// run plays the story. It removes all its files unless the user wants to keep them.
func run(ctx context.Context, s settings, stdout, stderr io.Writer) (err error) {
	began := time.Now()
	if s.data == "" {
		if s.data, err = os.MkdirTemp("", "manager-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(s.data)) }()
	} else if err := os.Mkdir(s.data, 0o700); err != nil {
		return fmt.Errorf("-data: %w", err)
	}
	path, err := filepath.Abs(s.data)
	if err != nil {
		return err
	}
	f := folder(path)
	if err := f.make(); err != nil {
		return err
	}
	if err := certify(f, storyWorkers()...); err != nil {
		return err
	}

	v := &view{out: stdout, began: began}
	m, err := startManager(ctx, f, v.term, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	t := &story{
		fleet:     &fleet{manager: m, folder: f, view: v, stderr: stderr, processes: make(map[string]*process)},
		documents: s.documents,
		share:     s.lasts / 4,
	}
	defer func() { err = errors.Join(err, t.close()) }()
	return t.tell(ctx)
}
