package main

// A part that is measured alone replaces the same part of a file that was written
// before.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// part is a part of the report that can be measured alone.
type part struct {
	head string // its headline
	goal string // the prefix of its goals, which identifies them
}

func runEtcd(ctx context.Context, cfg config, file string) error {
	r, err := measureEtcd(ctx, cfg)
	if err != nil {
		return err
	}
	var b strings.Builder
	r.write(&b, cfg.etcd)
	return partOnEtcd.put(file, b.String(), r.goals())
}

func runGRPC(ctx context.Context, cfg config, file string) error {
	r, err := measureGRPC(ctx, cfg)
	if err != nil {
		return err
	}
	var b strings.Builder
	r.write(&b, cfg.grpc)
	return partOverGRPC.put(file, b.String(), r.goals())
}

// put prints the results, and writes them to a file if there is one.
func (p part) put(file, measured string, goals []goal) error {
	fmt.Print(measured)
	if file == "" {
		fmt.Print("\n" + goalTable(goals, goal.verdict).layout(false))
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	spliced, err := p.splice(string(text), measured, goals)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(spliced), 0o644)
}

// splice replaces or inserts this part in a report, and replaces its goals.
func (p part) splice(text, measured string, goals []goal) (string, error) {
	before, after, ok := cutPart(text, "\n"+p.head+"\n")
	if !ok {
		var tail string
		if before, tail, ok = strings.Cut(text, "\n## How it is measured\n"); !ok {
			return "", errors.New("the part \"How it is measured\" is missing")
		}
		after = text[len(text)-len(tail)-len("\n## How it is measured\n"):]
	}
	text = before + measured + after

	before, after, ok = cutPart(text, "\n## Goals\n")
	if !ok {
		return "", errors.New("the part \"Goals\" is missing")
	}
	return before + p.spliceGoals(text[len(before):len(text)-len(after)], goals) + after, nil
}

// cutPart returns the text before and after the part with a headline.
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

// spliceGoals replaces this part's goals in the part about goals, and updates the
// count.
func (p part) spliceGoals(part string, goals []goal) string {
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
		case strings.HasPrefix(line, "| --"), strings.HasPrefix(line, "| "+p.goal):
		default:
			for i, cell := range cells {
				cells[i] = strings.TrimSpace(cell)
			}
			if len(t) == 0 {
				cells = append(cells, "") // the head's last cell is empty and was trimmed
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
