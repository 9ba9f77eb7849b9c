package main

// The part on etcd, measured alone, takes its place in a file that was written
// as a whole before.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

func runEtcd(ctx context.Context, cfg config, file string) error {
	r, err := measureEtcd(ctx, cfg)
	if err != nil {
		return err
	}
	var b strings.Builder
	r.write(&b, cfg.etcd)
	fmt.Print(b.String())
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	spliced, err := splice(string(text), b.String(), r.goals())
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(spliced), 0o644)
}

// splice replaces the part on etcd of a report, or puts it in, and its goals
// among the others.
func splice(text, part string, goals []goal) (string, error) {
	before, after, ok := cutPart(text, "\n## On etcd\n")
	if !ok {
		var tail string
		if before, tail, ok = strings.Cut(text, "\n## How it is measured\n"); !ok {
			return "", errors.New("no part says how it is measured")
		}
		after = text[len(text)-len(tail)-len("\n## How it is measured\n"):]
	}
	text = before + part + after

	before, after, ok = cutPart(text, "\n## Goals\n")
	if !ok {
		return "", errors.New("no part holds the goals")
	}
	return before + spliceGoals(text[len(before):len(text)-len(after)], goals) + after, nil
}

// cutPart returns what comes before a part, headed like this, and after it.
func cutPart(text, head string) (before, after string, ok bool) {
	before, part, ok := strings.Cut(text, head)
	if !ok {
		return "", "", false
	}
	if end := strings.Index(part, "\n## "); end >= 0 {
		after = part[end:]
	}
	return before, after, true
}

var countedMet = regexp.MustCompile(`\d+ of \d+ are met\.`)

// spliceGoals replaces the goals on etcd in the part that lists all, and counts
// anew.
func spliceGoals(part string, goals []goal) string {
	var t table
	var rest strings.Builder
	met := 0
	take := func(cells ...string) {
		if cells[len(cells)-1] == "met" {
			met++
		}
		t.row(cells...)
	}
	for line := range strings.Lines(part) {
		switch cells := strings.Split(strings.Trim(line, "| \n"), "|"); {
		case !strings.HasPrefix(line, "|"):
			rest.WriteString(line)
		case strings.HasPrefix(line, "| --"), strings.HasPrefix(line, "| "+etcdGoal):
		default:
			for i, cell := range cells {
				cells[i] = strings.TrimSpace(cell)
			}
			if len(t) == 0 {
				cells = append(cells, "") // the head's last cell is empty, and was trimmed
			}
			take(cells...)
		}
	}
	for _, g := range goals {
		take(g.what, g.measured, g.goal, g.verdict())
	}
	count := fmt.Sprintf(countOfMet, met, len(t)-1)
	return countedMet.ReplaceAllString(rest.String(), count) + t.layout(false)
}
