//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/f8949c05/orchestrator/examples/internal/stage"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
)

const (
	// watchTime is how long the replicas are watched before the next event.
	watchTime = time.Second
	// timeout is the longest time to wait for the result of an event.
	timeout = 30 * time.Second
)

// story makes things happen to replicas, and says what becomes of their tasks.
type story struct {
	ctx     context.Context
	err     error // the first error; after it every method does nothing
	log     *stage.Log
	journal *journal
	fleet   *fleet
	table   *memory.Table // nil: it cannot be taken away
	lease   time.Duration
	told    string // the last leader that was told of
}

// tell tells the story. Its error says what went wrong, first of all that a task ran
// twice.
func (s *story) tell() error {
	s.start("r1", "r2", "r3")
	s.until("a replica leads and the tasks are shared", func() bool { return s.journal.leader != "" && s.even() })
	s.look()
	chapters := []struct {
		title string
		tell  func()
	}{
		{"r4 joins", s.join},
		{"a replica is killed (SIGKILL)", s.kill},
		{"the leader is asked to stop (SIGTERM)", s.leave},
		{"the table goes away, for longer than a lease", s.outage},
		{"the leader is frozen (SIGSTOP), for longer than its lease", s.freeze},
	}
	if s.table == nil {
		chapters = slices.Delete(chapters, 3, 4)
	}
	for i, c := range chapters {
		if s.err != nil {
			return s.err
		}
		s.log.Title("%d/%d  %s", i+1, len(chapters), c.title)
		s.journal.begin()
		c.tell()
		s.look()
	}
	if s.err == nil {
		s.log.Title("all replicas are asked to stop")
	}
	for _, name := range s.fleet.names() {
		s.signal(name, syscall.SIGTERM)
	}
	for _, name := range s.fleet.names() {
		s.left(name)
	}
	if s.err != nil {
		return s.err
	}
	s.log.Title("the end: %d tasks moved %d times, and none of them ever ran twice", len(tasks), s.journal.moves)
	if s.journal.late > 0 {
		s.say("%d late steps of the frozen replica were refused by their tokens", s.journal.late)
	}
	return nil
}

// join adds a replica.
func (s *story) join() {
	began := time.Now()
	s.start("r4")
	s.until("r4 has its share", s.even)
	s.result("%v later r4 has its share", began)
}

// kill kills a replica that does not lead.
func (s *story) kill() {
	began, victim := time.Now(), s.others(s.journal.leader)[0]
	s.signal(victim, syscall.SIGKILL)
	s.say("%s has not left the table: its tasks wait for the end of its lease", victim)
	_ = s.ended(victim) // as it was told
	s.until("the others run all tasks", s.even)
	s.result("%v later the others run its tasks", began)
}

// leave asks the leader to stop.
func (s *story) leave() {
	began, leader := time.Now(), s.journal.leader
	s.signal(leader, syscall.SIGTERM)
	s.say("%s hands over: first the leadership, then its tasks", leader)
	s.left(leader)
	s.until("the others run all tasks", s.even)
	s.result("%v later it has left", began)
}

// outage takes the table away, and gives it back.
func (s *story) outage() {
	began := time.Now()
	s.table.SetFaults(func(replica.Update) memory.Fault { return memory.Fault{Err: errors.New("the table is away")} })
	s.until("all tasks have stopped", s.journal.idle)
	s.say("%v later all tasks have stopped: no replica runs tasks beyond its lease", since(began))
	s.watch(2*s.lease - time.Since(began))
	began = time.Now()
	s.table.SetFaults(nil)
	s.say("the table is back")
	s.until("the tasks are shared again", s.even)
	s.say("%v later all tasks run again", since(began))
}

// freeze stops the process of the leader for longer than its lease, and lets it continue.
func (s *story) freeze() {
	began, leader := time.Now(), s.journal.leader
	s.journal.frozen = leader
	s.signal(leader, syscall.SIGSTOP)
	s.until("the others run all tasks", func() bool { return s.journal.even(s.others(leader)) })
	s.say("%v later its tasks run elsewhere", since(began))
	s.watch(watchTime)

	began = time.Now()
	s.journal.frozen = ""
	s.signal(leader, syscall.SIGCONT)
	s.say("%s continues (SIGCONT): by its own clock its lease is over", leader)
	s.until(leader+" has ended or runs tasks again", func() bool { return s.journal.gone[leader] || s.even() })
	if s.journal.gone[leader] {
		if end := fmt.Sprint(s.ended(leader)); end != "exit status 3" {
			s.fail(errors.New(leader + " has ended: " + end))
		}
		s.say("it exits with code 3, because its tasks have not stopped in time, and is started again, as Kubernetes or systemd would do")
		s.start(leader)
	}
	s.until(leader+" has its share again", s.even)
	s.say("%v later it has its share again", since(began))
}

// others returns the names of the replicas but for one.
func (s *story) others(but string) []string {
	return slices.DeleteFunc(s.fleet.names(), func(name string) bool { return name == but })
}

// fail records an error.
func (s *story) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// say writes a line.
func (s *story) say(format string, args ...any) {
	if s.err == nil {
		s.log.Say(format, args...)
	}
}

// result says how long an event took, and what happened to the tasks meanwhile.
func (s *story) result(format string, began time.Time) {
	s.say(format+": %s", since(began), s.journal.summary())
}

// look says which replica runs what, and watches the replicas for some time.
func (s *story) look() {
	for _, name := range s.fleet.names() {
		s.say("%s runs %s", name, strings.Join(s.journal.runs(name), " "))
	}
	s.watch(watchTime)
}

// start starts replicas.
func (s *story) start(names ...string) {
	for _, name := range names {
		if s.err != nil {
			return
		}
		p, err := s.fleet.start(s.ctx, name)
		if err != nil {
			s.fail(err)
			return
		}
		s.say("%s is process %d", name, p.PID())
	}
}

// signal sends a signal to a replica.
func (s *story) signal(name string, sig syscall.Signal) {
	if s.err != nil {
		return
	}
	if err := s.fleet.processes[name].Signal(sig); err != nil {
		s.fail(fmt.Errorf("send %v to %s: %w", sig, name, err))
	}
}

// left waits until a replica has ended with code 0.
func (s *story) left(name string) {
	if err := s.ended(name); err != nil {
		s.fail(fmt.Errorf("%s has left: %w", name, err))
	}
}

// ended waits until a replica has ended, and returns the error of its process.
func (s *story) ended(name string) error {
	s.until(name+" has ended", func() bool { return s.journal.gone[name] })
	if s.err != nil {
		return nil
	}
	p := s.fleet.processes[name]
	delete(s.fleet.processes, name)
	delete(s.journal.gone, name)
	return p.Err()
}

// even reports whether all tasks run, evenly spread over all replicas.
func (s *story) even() bool { return s.journal.even(s.fleet.names()) }

// until reads reports until holds returns true. It fails if a task runs twice, or if that
// takes too long.
func (s *story) until(what string, holds func() bool) {
	if !s.read(timeout, holds) {
		s.fail(fmt.Errorf("waited %v in vain until %s", timeout, what))
	}
}

// watch reads reports for some time.
func (s *story) watch(d time.Duration) { s.read(d, func() bool { return false }) }

// read reads reports until holds returns true or the story fails. It returns false if d has
// passed before.
func (s *story) read(d time.Duration, holds func() bool) bool {
	over := time.After(d)
	for s.err == nil && !holds() {
		select {
		case r := <-s.fleet.reports:
			s.err = s.journal.observe(r.line, r.at)
			if leader := s.journal.leader; leader != "" && leader != s.told {
				s.say("%s leads", leader)
				s.told = leader
			}
		case <-over:
			return false
		case <-s.ctx.Done():
			s.err = context.Cause(s.ctx)
		}
	}
	return true
}

// since returns the time since a moment, rounded.
func since(t time.Time) time.Duration { return rounded(time.Since(t)) }

// rounded rounds a time to tenths of seconds, and short ones to milliseconds.
func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second / 10)
}
