package stage

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/f8949c05/orchestrator"
)

// columns is the maximum length of a line.
const columns = 80

// Log writes lines that begin with the seconds since its creation. It breaks long
// lines. It is safe for concurrent use.
type Log struct {
	mu    sync.Mutex // guards out
	out   io.Writer
	began time.Time
}

// NewLog returns a log that writes to out. It ignores errors of out, because a reader
// that has closed a pipe needs no more lines.
func NewLog(out io.Writer) *Log { return &Log{out: out, began: time.Now()} }

// Title writes an empty line and a line.
func (l *Log) Title(format string, args ...any) { l.write("\n", format, args...) }

// Say writes a line.
func (l *Log) Say(format string, args ...any) { l.write("", format, args...) }

func (l *Log) write(before, format string, args ...any) {
	stamp := fmt.Sprintf("%6.1fs  ", time.Since(l.began).Seconds())
	indent := strings.Repeat(" ", len(stamp)+2)
	var lines []string
	line := stamp + fmt.Sprintf(format, args...)
	for utf8.RuneCountInString(line) > columns {
		at := strings.LastIndexByte(string([]rune(line)[:columns+1]), ' ')
		if at <= len(indent) {
			break // a word that is too long stays whole
		}
		lines = append(lines, line[:at])
		line = indent + line[at+1:]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = io.WriteString(l.out, before+strings.Join(append(lines, line), "\n")+"\n")
}

// SayChanges writes a line for all changes of the same kind, reason and outcome
// between the same workers. The lines are sorted.
func SayChanges[W, T comparable](l *Log, changes []orchestrator.Change[W, T]) {
	tasks := make(map[string][]string)
	var whats []string
	for _, c := range changes {
		what := describe(c)
		if tasks[what] == nil {
			whats = append(whats, what)
		}
		tasks[what] = append(tasks[what], fmt.Sprint(c.Task))
	}
	slices.Sort(whats)
	for _, what := range whats {
		slices.Sort(tasks[what])
		l.Say("%s: %s", what, strings.Join(tasks[what], " "))
	}
}

func describe[W, T comparable](c orchestrator.Change[W, T]) string {
	var where string
	switch c.Kind.Op {
	case orchestrator.Start:
		where = fmt.Sprintf("on %v", c.To)
	case orchestrator.Stop:
		where = fmt.Sprintf("on %v", c.From)
	case orchestrator.Move:
		where = fmt.Sprintf("%v → %v", c.From, c.To)
	}
	what := fmt.Sprintf("%-5s %s (%s)", c.Kind.Op, where, c.Kind.Reason)
	if c.Outcome != orchestrator.OutcomeDone {
		what += fmt.Sprintf(", %s: %v", c.Outcome, c.Err)
	}
	return what
}
