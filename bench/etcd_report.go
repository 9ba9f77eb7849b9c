package main

// The part of the report about etcd, and its goals.

import (
	"fmt"
	"strings"
	"time"
)

// What the figures on etcd are held against.
const (
	etcdColdGoal   = 10 * time.Second
	etcdSteadyGoal = 50 * time.Millisecond
	etcdOpsGoal    = 100
	// In a steady term nothing changes but its number. The answer to that one
	// write, and its event, take about a hundred bytes.
	etcdReadGoal = 200
)

// partOnEtcd is the part about etcd.
var partOnEtcd = part{head: "## On etcd", goal: "on etcd, "}

func (r onEtcd) goals() []goal {
	cold, steady := medianOf(r.cold, episode.whole), medianOf(r.steady, episode.whole)
	read, requests := medianOf(r.steady, episode.allRead), medianOf(r.steady, episode.requests)
	return []goal{
		{
			partOnEtcd.goal + r.String() + ": a cold start, from nobody there until everything runs",
			seconds(cold), "under " + seconds(etcdColdGoal), cold < etcdColdGoal,
		},
		{
			partOnEtcd.goal + "the same: a steady term",
			millis(steady) + " ms", "under " + decimal(float64(etcdSteadyGoal.Milliseconds())) + " ms", steady < etcdSteadyGoal,
		},
		{
			partOnEtcd.goal + "the same: operations in the largest transaction",
			grouped(r.largest), fmt.Sprintf("at most %d", etcdOpsGoal), r.largest <= etcdOpsGoal,
		},
		{
			partOnEtcd.goal + "the same: read in a steady term, by all",
			fmt.Sprintf("%s bytes, asked for by %d requests", grouped(read), requests),
			fmt.Sprintf("its one write's answer and event: under %d bytes, by none", etcdReadGoal),
			read < etcdReadGoal && requests == 0,
		},
	}
}

const etcdHead = `
## On etcd

%s, one instance each, contents of %d bytes, on one embedded etcd, %s, that syncs every write to the disk, in a
temporary folder. All in one process: the server, a leader, and the members, each with a client of its own.
Measured at commit %s, %s, in %s. One write, alone, in turn with the steady terms, took %s ms; a steady term takes %s times as
long, since it makes one.

`

// etcdFoot takes the numbers of cold starts, steady terms and events, and the
// length of the lease.
const etcdFoot = `
Medians of %d cold starts, each on a new server, %d steady terms, and %d times that contents change, one joins and one is
lost.

- **Until it is known**: in a cold start, that all members have joined and that the leader, elected at the same time, has
  loaded the registry; that contents are written; that the leader knows of a new member; and that the lease, of %s, has
  ended of one that was cut off from etcd. It has stopped its tasks by then, by itself.
- **Until all is done** goes on from there, in as many terms as it takes, one of which finds nothing to do: until each task has
  been claimed and its function called, and contents have reached theirs. That no task runs twice is checked all the while.
- **Transactions** of workers are claims, what is written when a task has started or stopped, and loads. One worker's wait for
  each other, and each takes along what has come up since. An operation is a comparison, a read or a write, in any branch.
- **Requests to read** are those that are no transactions: of registry and membership when somebody joins or is elected, and of one key
  by each watch that has heard nothing for five seconds. Those make up what is read while a lease runs out.
- **Bytes** are those of gRPC messages, watches included, keepalives of leases not.
`

func (r onEtcd) write(b *strings.Builder, cfg etcdConfig) {
	fmt.Fprintf(b, etcdHead, r.size, etcdContent, version(etcdServer), r.revision, r.start.UTC().Format(time.DateOnly),
		r.end.Sub(r.start).Round(time.Second), millis(r.put.median()), decimal(ratio(r.steadyTook, r.put)))
	columns := [][]episode{r.cold, r.steady, r.changed, r.joined, r.lost}
	t := table{{"", "cold start", "steady term", fmt.Sprintf("%d contents change", cfg.contents), "one joins", "one lost"}}
	row := func(name string, cell func([]episode) string) {
		cells := []string{name}
		for _, episodes := range columns {
			cells = append(cells, cell(episodes))
		}
		t.row(cells...)
	}
	duration := func(name string, f func(episode) time.Duration) {
		row(name, func(of []episode) string { return millis(medianOf(of, f)) })
	}
	number := func(name string, f func(episode) int) {
		row(name, func(of []episode) string { return grouped(medianOf(of, f)) })
	}
	duration("ms until it is known", func(e episode) time.Duration { return e.before })
	duration("ms until all is done", func(e episode) time.Duration { return e.took })
	number("starts", func(e episode) int { return e.starts })
	number("terms, each begun by a transaction", func(e episode) int { return e.begun })
	number("other transactions of the leader", func(e episode) int { return e.txns[leaders] })
	number("transactions of the workers", func(e episode) int { return e.txns[workers] })
	number("operations in the largest", func(e episode) int { return e.largest })
	number("requests to read", func(e episode) int { return e.reads[leaders] + e.reads[workers] })
	number("watches begun", func(e episode) int { return e.watches[leaders] + e.watches[workers] })
	number("bytes read by the leader", func(e episode) int { return e.read[leaders] })
	number("bytes written by the leader", func(e episode) int { return e.written[leaders] })
	number("bytes read by all workers", func(e episode) int { return e.read[workers] })
	number("bytes written by all workers", func(e episode) int { return e.written[workers] })
	b.WriteString(t.layout(true))
	fmt.Fprintf(b, etcdFoot, cfg.colds, cfg.steady, cfg.events, cfg.lease)
}

// medianOf is the median of a figure of some episodes.
func medianOf[E any, N int | time.Duration](of []E, figure func(E) N) N {
	figures := make([]N, len(of))
	for i, e := range of {
		figures[i] = figure(e)
	}
	return middle(figures)
}

func seconds(d time.Duration) string { return decimal(d.Round(10*time.Millisecond).Seconds()) + " s" }
