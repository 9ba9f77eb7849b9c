// The growing files. They represent an endless source of data, and count their
// lines.

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

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
