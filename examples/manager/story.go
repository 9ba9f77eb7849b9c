package main

// The story: the tasks of the fleet, and the events, in four chapters.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
)

const growEvery = 50 * time.Millisecond

// storyWorkers returns the names of the workers. The second one leaves, and the last
// one joins.
func storyWorkers() []string { return []string{"w1", "w2", "w3", "w4"} }

// storyFiles returns the names of the growing files.
func storyFiles() []string { return []string{"east", "inner", "north", "outer", "south", "west"} }

// story is the state of the story.
type story struct {
	*fleet
	documents []document
	share     time.Duration // minimum duration of a chapter
	growth    *growth
}

// tell plays the story. A chapter takes longer if the fleet needs more time.
func (s *story) tell(ctx context.Context) error {
	workers := storyWorkers()
	s.view.say("manager is process %d, at %s; its store is %s", os.Getpid(), s.manager.address, s.folder.state())
	if err := s.join(ctx, workers[:3]...); err != nil {
		return err
	}
	chapters := []struct {
		title  string
		happen func() error
		done   func() error
	}{{
		title:  fmt.Sprintf("count the words of %d files, each to its end, %d at a time on each worker", len(s.documents), slots),
		happen: func() error { return s.putDocuments(ctx) },
		done:   s.counting(),
	}, {
		title:  fmt.Sprintf("follow %d files that grow, until told to stop", len(storyFiles())),
		happen: func() error { return s.putGrowing(ctx) },
		done:   s.following(),
	}, {
		title:  fmt.Sprintf("%s is told to leave (SIGTERM), and its tasks move", workers[1]),
		happen: func() error { return s.leave(ctx, workers[1]) },
		done:   s.following(),
	}, {
		title:  fmt.Sprintf("%s joins", workers[3]),
		happen: func() error { return s.join(ctx, workers[3]) },
		done:   s.following(),
	}}
	for i, c := range chapters {
		s.view.chapter(fmt.Sprintf("%d/%d  %s", i+1, len(chapters), c.title))
		over := time.Now().Add(s.share)
		if err := c.happen(); err != nil {
			return err
		}
		if err := s.until(ctx, c.done); err != nil {
			return err
		}
		if err := s.pass(ctx, time.Until(over)); err != nil {
			return err
		}
	}
	return s.finish(ctx)
}

// close stops the remaining processes and the growing files.
func (s *story) close() error {
	s.stop()
	if s.growth == nil {
		return nil
	}
	return s.growth.stop()
}

// putDocuments makes the workers count the documents, at a rate that takes most of
// the chapter.
func (s *story) putDocuments(ctx context.Context) error {
	var largest, total int64
	for _, d := range s.documents {
		largest, total = max(largest, d.size), total+d.size
	}
	rate := 0
	if seconds := s.share.Seconds(); seconds > 0 {
		rate = max(1, int(float64(max(largest, total/(3*slots)))/seconds))
	}
	var items []manager.Item
	for _, d := range s.documents {
		item, err := content{File: d.path, Rate: rate}.item(kindCount + d.name)
		if err != nil {
			return err
		}
		items = append(items, item)
	}
	_, err := s.manager.PutAll(ctx, items)
	return err
}

// counting returns a function that shows new results, and fails until all documents
// are counted.
func (s *story) counting() func() error {
	told := make(map[string]bool)
	next := time.Now()
	return func() error {
		all, err := s.completed()
		if err != nil {
			return err
		}
		left := len(s.documents) - len(all)
		if left == 0 || time.Now().After(next) {
			next = time.Now().Add(time.Second)
			by := make(map[string][]string)
			for _, c := range all {
				if !told[c.Task] {
					told[c.Task] = true
					by[c.Worker] = append(by[c.Worker], short(c.Task))
				}
			}
			for _, worker := range slices.Sorted(maps.Keys(by)) {
				s.view.say("%s has counted: %s", worker, brief(by[worker]))
			}
		}
		if left > 0 {
			return fmt.Errorf("%d files are not counted", left)
		}
		return nil
	}
}

// putGrowing starts the growing files, and makes the workers follow them.
func (s *story) putGrowing(ctx context.Context) (err error) {
	if s.growth, err = startGrowth(s.folder, storyFiles(), growEvery); err != nil {
		return err
	}
	var items []manager.Item
	for _, name := range storyFiles() {
		item, err := content{File: s.folder.log(name), To: s.folder.followed(name)}.item(kindFollow + name)
		if err != nil {
			return err
		}
		items = append(items, item)
	}
	_, err = s.manager.PutAll(ctx, items)
	return err
}

// following returns a function that shows which worker follows which file. It fails
// until the files are spread evenly over the present workers, and each worker
// follows as many of its files as it has slots for.
func (s *story) following() func() error {
	var before map[string]map[string]int // by file and worker, at the first call
	return func() error {
		lines, err := s.lines()
		if err != nil {
			return err
		}
		if before == nil {
			before = lines
		}
		runs, err := s.even(len(s.growth.files))
		if err != nil {
			return err
		}
		var loads []string
		for _, worker := range slices.Sorted(maps.Keys(runs)) {
			var follows, waits []string
			for _, t := range runs[worker] {
				if name := short(t); lines[name][worker] > before[name][worker] {
					follows = append(follows, name)
				} else {
					waits = append(waits, name)
				}
			}
			if want := min(len(follows)+len(waits), slots); len(follows) < want {
				return fmt.Errorf("%s follows %d files: want %d", worker, len(follows), want)
			}
			load := worker + ": " + strings.Join(follows, " ")
			if len(waits) > 0 {
				load += ", waiting for a slot: " + strings.Join(waits, " ")
			}
			loads = append(loads, load)
		}
		s.view.say("%s", strings.Join(loads, "; "))
		return nil
	}
}

// lines returns the number of followed lines, by file and worker.
func (s *story) lines() (map[string]map[string]int, error) {
	counts := make(map[string]map[string]int)
	for _, name := range storyFiles() {
		entries, _, err := readEntries[followed](s.folder.followed(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		counts[name] = make(map[string]int)
		for _, e := range entries {
			counts[name][e.Worker]++
		}
	}
	return counts, nil
}

// finish waits until all lines are followed, makes all workers leave, and shows the
// summary.
func (s *story) finish(ctx context.Context) error {
	s.view.chapter("the files stop growing, and all workers leave")
	if err := s.growth.stop(); err != nil {
		return err
	}
	if err := s.until(ctx, s.caughtUp); err != nil {
		return err
	}
	var names []string
	for _, name := range storyFiles() {
		names = append(names, kindFollow+name)
	}
	if err := s.manager.Delete(ctx, names...); err != nil {
		return err
	}
	if err := s.leave(ctx, slices.Sorted(maps.Keys(s.processes))...); err != nil {
		return err
	}
	sum, err := summarize(s.folder, s.documents, s.growth.files)
	if err != nil {
		return err
	}
	return sum.write(s.view.out)
}

// caughtUp fails if a file has lines that were not followed.
func (s *story) caughtUp() error {
	lines, err := s.lines()
	if err != nil {
		return err
	}
	for _, f := range s.growth.files {
		n := 0
		for _, followed := range lines[f.name] {
			n += followed
		}
		if n < f.lines {
			return fmt.Errorf("%d of %d lines of %s were followed", n, f.lines, f.name)
		}
	}
	return nil
}
