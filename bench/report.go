package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The report, in the order of the reader's questions: are the goals met, how does it
// compare, and what does it consist of.

// notes is the part written by hand.
//
//go:embed notes.md
var notes string

// cited are the figures of software that is no longer available as a module.
const cited = `| tasks × workers |     cold |  steady | one joins | one lost |
| --------------- | -------: | ------: | --------: | -------: |
| 1k × 10         |     6 ms |   12 ms |     13 ms |     9 ms |
| 10k × 100       |   0.34 s |  1.50 s |    1.50 s |   1.54 s |
| 20k × 200       |   1.04 s |  4.71 s |    5.65 s |   4.54 s |
| 100k × 1k       |   25.8 s | > 300 s |           |          |
`

func (r results) markdown() string {
	var b strings.Builder
	r.writeHead(&b)
	r.writeGoals(&b)
	b.WriteString("\n## What dominated, and what was done about it\n\n" + strings.TrimSpace(notes) + "\n")
	r.writeComparison(&b)
	r.writeSeveral(&b)
	r.writeTerms(&b)
	r.largest.write(&b)
	r.writeHard(&b)
	r.writeNetwork(&b)
	r.enlist.write(&b)
	r.etcd.write(&b, r.cfg.etcd)
	r.grpc.write(&b, r.cfg.grpc)
	writeReactions(&b, r.reactions, r.cfg.reaction)
	r.writeMethod(&b)
	return b.String()
}

func (r results) writeHead(b *strings.Builder) {
	b.WriteString("# Benchmarks\n\n")
	b.WriteString("<!-- Written by `make bench`. The part written by hand is bench/notes.md. -->\n\n")
	if r.cfg.quick {
		b.WriteString("**A quick run: small fleets, few rounds. It shows that the command works; its figures mean nothing.**\n\n")
	}
	b.WriteString("All figures are medians, measured side by side and in turn in one run. Times differ between machines and\n" +
		"hours; compare the ratios.\n\n")
	var t table
	t.row("", "")
	t.row("command", "`make bench`, in "+r.end.Sub(r.start).Round(time.Second).String())
	t.row("date", r.start.UTC().Format(time.DateOnly))
	t.row("commit", r.revision)
	t.row("machine", machine())
	t.row("versions", strings.Join(versions(), ", "))
	b.WriteString(t.layout(false))
}

// countOfMet is the sentence about the number of goals met.
const countOfMet = "%d of %d are met."

func (g goal) verdict() string {
	if g.met {
		return "met"
	}
	return "**not met**"
}

// goalTable returns a table with a row for each goal.
func goalTable(goals []goal, verdict func(goal) string) table {
	t := table{{"what", "measured", "goal", ""}}
	for _, g := range goals {
		t.row(g.what, g.measured, g.goal, verdict(g))
	}
	return t
}

func (r results) writeGoals(b *strings.Builder) {
	goals := r.goals()
	met := 0
	for _, g := range goals {
		if g.met {
			met++
		}
	}
	count, verdict := fmt.Sprintf(countOfMet, met, len(goals)), goal.verdict
	if r.cfg.quick {
		count = "A quick run judges none."
		verdict = func(goal) string { return "not judged" }
	}
	t := goalTable(goals, verdict)
	fmt.Fprintf(b, "\n## Goals\n\n%s instances × workers, unless another size is given; the scan and the rest of the floor are explained\n"+
		"[below](#how-it-is-measured). %s\n\n%s", r.cfg.big, count, t.layout(false))
}

// head returns a row of events.
func head(first string) []string {
	row := []string{first}
	for _, e := range events {
		row = append(row, e.name)
	}
	return row
}

func (r results) writeComparison(b *strings.Builder) {
	b.WriteString("\n## Planners\n\nOne instance of each task. Each cell: milliseconds · spread (the largest load less the smallest) ·\n" +
		"moves (instances that start where they did not run). An empty cell was not measured: see [below](#how-it-is-measured).\n")
	for _, p := range slices.Backward(r.plans) { // the largest first
		fmt.Fprintf(b, "\n### %s\n\n", p.size)
		t := table{head("ms · spread · moves")}
		scans, alone := []string{"the integer scan"}, []string{usAlone}
		for _, f := range p.floors {
			scans = append(scans, millis(f.scan.median()))
			alone = append(alone, f.String())
		}
		t.row(scans...)
		t.row(alone...)
		for k, name := range p.planners {
			if !p.took(k) {
				continue
			}
			row := []string{name}
			for n := range events {
				row = append(row, p.results[n][k].String())
			}
			t.row(row...)
		}
		b.WriteString(t.layout(true))
		b.WriteString("\n" + p.multiples().layout(true))
	}
	b.WriteString("\n### The software that this library replaces\n\n" +
		"go-orchestrator (`code.cloudfoundry.org/go-orchestrator`, `github.com/poy/go-orchestrator`) is no longer available\n" +
		"as a module. These are the times of a whole term with a communicator that does nothing, measured\n" +
		"earlier, on another two-core machine; so ratios to them are rougher than the others here.\n\n" + cited)
}

// String returns the time in milliseconds, the spread and the moves.
func (d planned) String() string {
	if !d.tried {
		return ""
	}
	return fmt.Sprintf("%s · %d · %s", millis(d.took.median()), d.outcome.spread, grouped(d.outcome.moves))
}

// took reports whether a planner took part at all.
func (p plans) took(planner int) bool {
	for n := range events {
		if p.results[n][planner].tried {
			return true
		}
	}
	return false
}

// multiples returns the time of this library divided by that of the scan, and the
// times of the other planners divided by that of this library. Each ratio is within
// one race.
func (p plans) multiples() table {
	t := table{head("times as long as")}
	row := []string{usAlone + " / the scan"}
	for _, f := range p.floors {
		row = append(row, decimal(ratio(f.took, f.scan)))
	}
	t.row(row...)
	for k, name := range p.planners {
		if !p.took(k) || name == us {
			continue
		}
		row := []string{name + " / " + us}
		for n, e := range events {
			cell := ""
			if d := p.results[n][k]; d.tried {
				cell = decimal(ratio(d.took, p.of(us, e).took))
			}
			row = append(row, cell)
		}
		t.row(row...)
	}
	return t
}

func (r results) writeSeveral(b *strings.Builder) {
	b.WriteString("\n## Several instances of each task\n\nThe other planners do not support this. A change is a start, a stop or a move.\n")
	for _, copies := range r.cfg.copies {
		fmt.Fprintf(b, "\n### %d instances each\n\n", copies)
		t := table{head("ms · spread · moves")}
		for _, s := range slices.Backward(r.cfg.plans) {
			p := r.at(s.of(copies))
			cells, scans, each := []string{s.String()}, []string{"× scan"}, []string{"ns a change beyond 3 scans"}
			for _, f := range p.floors {
				cells = append(cells, f.String())
				scans = append(scans, decimal(ratio(f.took, f.scan)))
				beyond := ""
				if f.changes > 0 {
					beyond = fmt.Sprint(max(0, int(f.took.median()-3*f.scan.median())/f.changes))
				}
				each = append(each, beyond)
			}
			t.row(cells...)
			t.row(scans...)
			t.row(each...)
		}
		b.WriteString(t.layout(true))
	}
}

func (r results) writeTerms(b *strings.Builder) {
	x := r.terms
	fmt.Fprintf(b, "\n## Whole terms\n\n%s, through the public API. Names are strings; a fresh list has no memory in common with the last one.\n"+
		"\"Its writes alone\" is the same number of calls that do nothing.\n\n", x.size)
	t := table{{"", "ms"}}
	t.row("the integer scan", millis(x.scan.median()))
	t.row("every reported name compared with the last report", millis(x.compare.median()))
	t.row(fmt.Sprintf("%s calls that do nothing, %d at a time, a deadline each", grouped(x.size.workers), callsAtOnce), millis(x.fanOut.median()))
	t.row("a steady term of "+x.small.String(), millis(x.smallFresh.median()))
	t.row("a steady term of "+x.old.String(), millis(x.oldFresh.median()))
	b.WriteString(t.layout(true) + "\n")
	t = table{{"ms", "steady", "one joined", "its writes alone", "one lost", "its writes alone"}}
	for _, s := range []struct {
		lists string
		sequence
	}{{"fresh lists", x.fresh}, {"the very same slices", x.same}} {
		t.row(s.lists, millis(s.steady.median()),
			millis(s.joined.median()), fmt.Sprintf("%s (%d)", millis(s.joinCalls.median()), s.joinWrites),
			millis(s.lost.median()), fmt.Sprintf("%s (%d)", millis(s.lostCalls.median()), s.lostWrites))
	}
	b.WriteString(t.layout(true))
}

const hardCasesHead = `
## Hard cases

Problems that need a search, each about as large as %s: a random surplus copy for every hundredth task; 1.5 times as many random
pairs as tasks, with one copy of each task wanted; and tasks that are wanted on 90 to 100 of 100 workers, with four fifths of all
pairs present, at random. The prototype is the one with which the algorithm was chosen. It took 15 to 20, 140 to 220 and 40 to
46 ms on another machine, where the scan of 1M pairs took 8 to 10 ms.

`

func (r results) writeHard(b *strings.Builder) {
	fmt.Fprintf(b, hardCasesHead, r.cfg.big)
	t := table{{"", "pairs", "workers", "ms · spread · moves", "× scan of " + thousands(r.cfg.big.instances), "× its own scan", "prototype"}}
	for _, h := range r.hard {
		t.row(h.name, grouped(h.pairs), grouped(h.workers), planned{took: h.took, outcome: h.outcome, tried: true}.String(),
			decimal(ratio(h.took, h.scan)), decimal(ratio(h.took, h.ownScan)), decimal(h.prototype))
	}
	b.WriteString(t.layout(true))
}

func (r results) writeNetwork(b *strings.Builder) {
	if !r.cfg.network {
		return
	}
	n := r.network
	fmt.Fprintf(b, "\n## A slow network\n\n1,000 workers, 100k tasks, 20 ms a call, %s calls at a time, through `Applier`, in a `testing/synctest` bubble,\n"+
		"where time is exact: `go test ./bench -run Network -v`.\n\n", grouped(callsAtOnce))
	t := table{{"", ""}}
	t.row("cold start, the whole term", n.cold.String())
	t.row("ideal: one List and one Apply for each worker, no gap between calls", n.ideal.String())
	t.row("calls made", grouped(n.calls))
	t.row(fmt.Sprintf("%d workers join: time from the first write to the last move", networkJoin), n.othersUndelayed.String())
	t.row("the same if one of them, or one source, takes 2 s a call: the last move of other workers", n.others.String())
	b.WriteString(t.layout(true))
}

func (r results) writeMethod(b *strings.Builder) {
	fmt.Fprintf(b, method, r.cfg.rounds, r.cfg.slowRounds, r.cfg.termRounds, r.cfg.sarama)
}

// Markdown tables that are readable before they are rendered.

// table holds rows of cells; the first row is the head.
type table [][]string

func (t *table) row(cells ...string) { *t = append(*t, cells) }

// layout formats the table. If numbers is true, all columns except the first are
// right-aligned.
func (t table) layout(numbers bool) string {
	widths := make([]int, len(t[0]))
	for _, row := range t {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell), 4)
		}
	}
	var b strings.Builder
	for n, row := range t {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if numbers && i > 0 {
				cell = pad + cell
			} else {
				cell += pad
			}
			fmt.Fprintf(&b, "| %s ", cell)
		}
		b.WriteString("|\n")
		if n > 0 {
			continue
		}
		for i, width := range widths {
			if numbers && i > 0 {
				fmt.Fprintf(&b, "| %s: ", strings.Repeat("-", width-1))
			} else {
				fmt.Fprintf(&b, "| %s ", strings.Repeat("-", width))
			}
		}
		b.WriteString("|\n")
	}
	return b.String()
}

// decimal formats a number with as many decimals as are meaningful.
func decimal(x float64) string {
	switch {
	case x == float64(int64(x)):
		return fmt.Sprintf("%.0f", x)
	case x < 10:
		return fmt.Sprintf("%.2f", x)
	case x < 100:
		return fmt.Sprintf("%.1f", x)
	}
	return grouped(int(x + 0.5))
}

// millis formats a duration in milliseconds, with three significant digits.
func millis(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 1:
		return fmt.Sprintf("%.3f", ms)
	case ms < 10:
		return fmt.Sprintf("%.2f", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f", ms)
	}
	return grouped(int(ms + 0.5))
}

// grouped formats a number with commas.
func grouped(n int) string {
	if n < 0 {
		return "-" + grouped(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

// method is the part of the report about the method. It takes the numbers of rounds
// of plans, of planners for big fleets, and of terms, and the size at which sarama
// takes part.
const method = `
## How it is measured

- **In turn.** Everything that is compared runs in turn, round after round, and each round begins with another participant, so
  that other load of the machine affects all alike. A garbage collection precedes each turn. A first round, in which
  the participants allocate their memory, does not count. Times are medians. A ratio is the median of the ratios of the rounds
  in which both took part, so it is not exactly the quotient of two times.
- **Warm, apart from others.** This library and its floor have separate races, without other participants, and each part
  runs once untimed right before it is timed. So the caches hold its data, and its memory is allocated. Otherwise the
  floor would pay for what ran before it, and ratios to it would flatter. This applies to plans and the scan (%d rounds), the hard
  cases, the growth, for which both sizes take turns, and whole terms; a term with an event comes right after
  an untimed steady one.
- **Beside other planners** is another race in the same run: %d rounds at 1M instances, and as many as above for
  smaller fleets. This library plans once untimed here too. The others do not, because they have no
  memory to reuse. The row *its first plan* shows this library without that memory.
- **Inputs** are in each planner's own form before the clock starts; only planning is timed. Every plan is then
  checked: each task must be on exactly as many different workers as wanted, and loads must
  differ by at most one if that is promised. A plan that fails ends the run.
- **The integer scan** passes once over the tasks of every worker and stores, in one 64-bit word for each task, the last
  worker and the number of copies. It scans the fleet before the event, and is measured with each event. Which
  worker runs which task is random, as is the order in which it lists them.
- **The comparison** passes over all names on one core; a term uses both cores.
- **The fan-out** is up to 1,024 goroutines that share the calls: each call makes a context with a deadline and cancels it. A
  term has one deadline for all its List calls, so this part of the floor does more than necessary.
- **Whole terms** are measured in %d rounds.
- **This library** reuses one planner, as the orchestrator does; *its first plan* is that of a new
  planner, which must allocate its memory. Reasons and the lower bound are part of every plan.
- **franz-go**: ` + "`kgo.StickyBalancer`" + ` (eager), called as its client does: MemberBalancer prepares, BalanceOrError plans.
  It has no memory to reuse. It decodes the members' partitions while it plans; *encoded* also includes the members' encoding
  (JoinGroupMetadata) and the leader's parsing (MemberBalancer). A task is a partition of one topic, or of one of 100
  topics to which all members subscribe. It gives each partition to one member, so it takes part with one instance.
- **sarama**: NewBalanceStrategySticky, one topic, at %s only, in three rounds, and one for all on one:
  it takes minutes at the next size.
- **Jump hash** knows no loads and keeps no state, so it is uneven. Workers leave at the end of the list, because it
  supports nothing else. Hashing names into its keys is not included.
`
