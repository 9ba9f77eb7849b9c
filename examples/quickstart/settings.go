package main

// The flags, and the tasks: the endpoints to watch, either those of the demonstration
// or those of a file.

import (
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
)

// settings holds the flags.
type settings struct {
	tasks   []task // nil: the endpoints of the demonstration
	workers int
	lasts   time.Duration
	metrics string
}

func parse(args []string) (settings, error) {
	var s settings
	var file string
	flags := flag.NewFlagSet("quickstart", flag.ExitOnError)
	flags.StringVar(&file, "tasks", "", "watch the endpoints of this `file`: lines of name,url,instances")
	flags.IntVar(&s.workers, "workers", 4, "begin with `n` workers, from 3 to 100")
	flags.DurationVar(&s.lasts, "duration", 30*time.Second, "the minimum duration; it takes longer if the fleet does")
	flags.StringVar(&s.metrics, "metrics", "", "serve /metrics at this `address`, and continue until interrupted")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case s.workers < 3 || s.workers > 100:
		return s, fmt.Errorf("-workers is %d: want 3 to 100, because one is killed, one is drained, and each endpoint needs two", s.workers)
	case s.lasts < 0:
		return s, fmt.Errorf("-duration is %v: must not be negative", s.lasts)
	case file == "":
		return s, nil
	}
	tasks, err := readTasks(file)
	if err != nil {
		return s, fmt.Errorf("-tasks: %w", err)
	}
	for _, t := range tasks {
		if t.Instances >= s.workers {
			return s, fmt.Errorf("-tasks: %v wants %d instances, but with -workers %d there are sometimes only %d workers", t.Name, t.Instances, s.workers, s.workers-1)
		}
	}
	s.tasks = tasks
	return s, nil
}

// endpoint is a task. Any comparable value can be a task; this one contains all that
// a worker needs.
type endpoint struct{ Name, URL string }

func (e endpoint) String() string { return e.Name }

// task is an endpoint and its number of instances.
type task = orchestrator.Task[endpoint]

// The endpoints of the demonstration, the number of workers that probe each, and the
// endpoints added and removed at its end.
const (
	storyNames = "api auth blog cart cdn chat docs faq feed geo home jobs " +
		"login mail maps news pay push search shop stock tax video wiki"
	storyAdded     = "help live sso"
	storyRemoved   = "blog faq"
	storyInstances = 2
)

// storyTasks returns tasks for names, with URLs below base.
func storyTasks(base, names string) []task {
	var tasks []task
	for name := range strings.FieldsSeq(names) {
		tasks = append(tasks, task{Name: endpoint{Name: name, URL: base + "/" + name}, Instances: storyInstances})
	}
	return tasks
}

// readTasks reads a CSV file with the columns name, url and instances. A first line
// with just these names is skipped.
func readTasks(file string) ([]task, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()

	r := csv.NewReader(f)
	r.FieldsPerRecord = -1 // parseTask checks the number of fields, with a clearer error
	r.TrimLeadingSpace = true
	var tasks []task
	lines := make(map[string]int)
	for first := true; ; first = false {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if bad, ok := errors.AsType[*csv.ParseError](err); ok {
			return nil, fmt.Errorf("%s:%d: %w", file, bad.Line, bad.Err)
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if first {
			row[0] = strings.TrimPrefix(row[0], "\ufeff") // written by spreadsheet programs
			if strings.EqualFold(strings.Join(row, ","), "name,url,instances") {
				continue
			}
		}
		line, _ := r.FieldPos(0)
		t, err := parseTask(row)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, line, err)
		}
		if before, ok := lines[t.Name.Name]; ok {
			return nil, fmt.Errorf("%s:%d: the name %q is already on line %d", file, line, t.Name.Name, before)
		}
		lines[t.Name.Name] = line
		tasks = append(tasks, t)
	}
	if len(tasks) == 0 {
		return nil, fmt.Errorf("%s: no endpoints: want lines of name,url,instances", file)
	}
	return tasks, nil
}

func parseTask(row []string) (task, error) {
	if len(row) != 3 {
		return task{}, fmt.Errorf("%d fields: want name,url,instances", len(row))
	}
	name, address := strings.TrimSpace(row[0]), strings.TrimSpace(row[1])
	if name == "" {
		return task{}, errors.New("the name is empty")
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return task{}, fmt.Errorf("the url is %q: want http:// or https:// and a host", address)
	}
	instances, err := strconv.Atoi(strings.TrimSpace(row[2]))
	if err != nil || instances < 1 {
		return task{}, fmt.Errorf("the instances are %q: want a whole number, at least 1", row[2])
	}
	if instances > math.MaxInt32 {
		return task{}, fmt.Errorf("the instances are %q: want at most %d", row[2], math.MaxInt32)
	}
	return task{Name: endpoint{Name: name, URL: address}, Instances: instances}, nil
}
