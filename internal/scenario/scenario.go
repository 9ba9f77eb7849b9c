package scenario

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator/communicator/memory"
)

// Play executes the commands of a transcript, and returns the transcript with their
// output. It must be called in a bubble of testing/synctest. It fails t for a line
// that is not a valid command, and if two calls of one leader to one worker overlap
// (C1).
func Play(t testing.TB, transcript string) string {
	t.Helper()
	p := newPlayer(t)
	var b strings.Builder
	for i, line := range strings.Split(strings.TrimRight(transcript, "\n"), "\n") {
		if strings.HasPrefix(line, " ") {
			continue // former output
		}
		b.WriteString(line + "\n")
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		p.line = fmt.Sprintf("line %d: %s", i+1, line)
		p.command(words)()
		synctest.Wait()
		for _, text := range p.flush() {
			b.WriteString("  " + text + "\n")
		}
	}
	p.close()
	return b.String()
}

// player executes one transcript. Commands run one after the other, except that
// those of later run on the goroutine of the command run.
type player struct {
	t       testing.TB
	line    string // of the command under way
	out     []string
	cluster *memory.Cluster[string, string]
	members []string

	leaders []*leader
	current *leader // the one that lead selected
	planned []func(began time.Time)
	release map[string]func() // by worker: ends HoldWrites
	monitor monitor

	mu      sync.Mutex
	faults  []fault
	latency map[string]time.Duration // of List, by worker
}

func newPlayer(t testing.TB) *player {
	t.Helper()
	c, err := memory.New[string, string](nil)
	p := &player{
		t: t, cluster: c,
		release: make(map[string]func()), latency: make(map[string]time.Duration), monitor: newMonitor(),
	}
	p.must(err)
	return p
}

// close ends all calls and the cluster.
func (p *player) close() {
	p.setFaults(nil)
	p.cluster.Heal()
	p.sleep(time.Hour) // calls that no term awaits
	synctest.Wait()
	for _, l := range p.leaders {
		if workers := l.transport.open(); len(workers) > 0 {
			p.t.Errorf("calls that never return: to %v", workers)
		}
	}
	p.must(p.cluster.Close(p.t.Context()))
}

// command returns what a line does.
func (p *player) command(words []string) func() {
	name, args := words[0], words[1:]
	c, ok := commands()[name]
	if !ok {
		p.fatalf("unknown command %s", name)
	}
	if len(args) < c.args {
		p.fatalf("%s needs at least %d arguments", name, c.args)
	}
	return func() { c.do(p, args) }
}

// command is what a line can begin with; doc.go describes all of them.
type command struct {
	args int // the least number of arguments
	do   func(*player, []string)
}

func commands() map[string]command {
	return map[string]command{
		"leader": {0, (*player).addLeader},
		"lead":   {1, (*player).lead},
		"term":   {0, (*player).term},
		"terms":  {1, (*player).terms},
		"plan":   {0, (*player).plan},
		"begin":  {0, (*player).begin},
		"finish": {0, (*player).finish},
		"run":    {2, (*player).run},
		"later":  {2, (*player).later},

		"join":    {1, (*player).join},
		"leave":   {1, forEach((*player).leave)},
		"drain":   {1, forEach((*player).drain)},
		"undrain": {1, forEach((*player).undrain)},
		"tasks":   {1, (*player).tasks},
		"drop":    {1, forEach((*player).drop)},

		"start":  {1, func(p *player, names []string) { p.cluster.Start(names...) }},
		"kill":   {1, func(p *player, names []string) { p.cluster.Kill(names...) }},
		"runs":   {2, (*player).startTasks},
		"repeat": {2, (*player).repeat},
		"refuse": {3, (*player).refuse},
		"fail":   {3, (*player).fail},
		"garble": {3, (*player).garble},
		"delay":  {4, (*player).delay},
		"allow":  {0, func(p *player, _ []string) { p.setFaults(nil) }},

		"cut":   {1, func(p *player, names []string) { p.cluster.Cut(names...) }},
		"hang":  {1, func(p *player, names []string) { p.cluster.Hang(names...) }},
		"stick": {1, func(p *player, names []string) { p.cluster.Stick(names...) }},
		"slow":  {2, func(p *player, a []string) { p.cluster.Slow(p.duration(a[0]), a[1:]...) }},
		"late":  {2, func(p *player, a []string) { p.cluster.Late(p.duration(a[0]), a[1:]...) }},
		"mute":  {1, func(p *player, names []string) { p.cluster.LoseAnswers(names...) }},
		"hold":  {1, func(p *player, a []string) { p.release[a[0]] = p.cluster.HoldWrites(a[0]) }},
		"free":  {1, func(p *player, a []string) { p.release[a[0]]() }},
		"heal":  {0, func(p *player, names []string) { p.cluster.Heal(names...) }},

		"wait": {1, func(p *player, a []string) { p.sleep(p.duration(a[0])) }},
		"show": {0, func(p *player, _ []string) { p.printRows(p.current) }},
	}
}

// forEach makes a command for several names of a function for one.
func forEach(do func(*player, string)) func(*player, []string) {
	return func(p *player, names []string) {
		for _, name := range names {
			do(p, name)
		}
	}
}

// expand returns the names that arguments such as t1..t4 stand for.
func expand(args []string) (names []string) {
	for _, arg := range args {
		first, last, ok := strings.Cut(arg, "..")
		prefix := strings.TrimRight(first, "0123456789")
		var from, to int
		if ok {
			_, err := fmt.Sscanf(first+" "+last, prefix+"%d "+prefix+"%d", &from, &to)
			ok = err == nil
		}
		if !ok {
			names = append(names, arg)
			continue
		}
		for i := from; i <= to; i++ {
			names = append(names, fmt.Sprint(prefix, i))
		}
	}
	return names
}

func (p *player) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	p.must(err)
	return d
}

// sleep waits in the time of the bubble.
func (p *player) sleep(d time.Duration) { <-time.After(d) }

func (p *player) number(text string) int {
	n, err := strconv.Atoi(text)
	p.must(err)
	return n
}

// must ends the test for an error that does not belong to the transcript.
func (p *player) must(err error) {
	p.t.Helper()
	if err != nil {
		p.fatalf("%v", err)
	}
}

func (p *player) fatalf(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s: %s", p.line, fmt.Sprintf(format, args...))
}
