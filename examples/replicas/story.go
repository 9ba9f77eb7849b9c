package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

const (
	// watchTime is how long the replicas are watched before the next event.
	watchTime = time.Second
	// timeout is the longest time to wait for the result of an event.
	timeout = 30 * time.Second
)

// story makes things happen to replicas, and says what becomes of their tasks.
type story struct {
	log     *stage.Log
	journal *journal
	fleet   *fleet
	table   *table // nil: it cannot be taken away
	lease   time.Duration
	told    string // the last leader that was told of
}

// chapter is one event of the story.
type chapter struct {
	title string
	tell  func(ctx context.Context) error
}

// tell tells the story. Its error says what went wrong, first of all that a task ran
// twice.
func (s *story) tell(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	chapters := []chapter{
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
		s.log.Title("%d/%d  %s", i+1, len(chapters), c.title)
		s.journal.begin()
		if err := c.tell(ctx); err != nil {
			return err
		}
		if err := s.look(ctx); err != nil {
			return err
		}
	}
	s.log.Title("all replicas are asked to stop")
	for _, name := range s.fleet.names() {
		if err := s.signal(name, syscall.SIGTERM); err != nil {
			return err
		}
	}
	for _, name := range s.fleet.names() {
		if err := s.left(ctx, name); err != nil {
			return err
		}
	}
	s.log.Title("the end: %d tasks moved %d times, and none of them ever ran twice", len(tasks), s.journal.moves)
	if s.journal.late > 0 {
		s.log.Say("%d late steps of the frozen replica were refused by their tokens", s.journal.late)
	}
	return nil
}

// begin starts three replicas.
func (s *story) begin(ctx context.Context) error {
	if err := s.start(ctx, "r1", "r2", "r3"); err != nil {
		return err
	}
	s.log.Say("in a new table no replica leads before one lease (%v) is over, since after "+
		"the loss of a table others could still run tasks", s.lease)
	err := s.until(ctx, "a replica leads and the tasks are shared", func() bool { return s.journal.leader != "" && s.even() })
	if err != nil {
		return err
	}
	return s.look(ctx)
}

// join adds a replica.
func (s *story) join(ctx context.Context) error {
	began := time.Now()
	if err := s.start(ctx, "r4"); err != nil {
		return err
	}
	if err := s.until(ctx, "r4 has its share", s.even); err != nil {
		return err
	}
	s.result("%v later r4 has its share", since(began))
	return nil
}

// kill kills a replica that does not lead.
func (s *story) kill(ctx context.Context) error {
	names := slices.DeleteFunc(s.fleet.names(), func(name string) bool { return name == s.journal.leader })
	victim := names[0]
	began := time.Now()
	if err := s.signal(victim, syscall.SIGKILL); err != nil {
		return err
	}
	s.log.Say("%s has not left the table: its tasks wait for the end of its lease", victim)
	if err := s.ended(ctx, victim); err != nil {
		return err
	}
	if err := s.until(ctx, "the others run all tasks", s.even); err != nil {
		return err
	}
	s.result("%v later the others run its tasks", since(began))
	return nil
}

// leave asks the leader to stop.
func (s *story) leave(ctx context.Context) error {
	leader := s.journal.leader
	began := time.Now()
	if err := s.signal(leader, syscall.SIGTERM); err != nil {
		return err
	}
	s.log.Say("%s hands over: first the leadership, then its tasks", leader)
	if err := s.left(ctx, leader); err != nil {
		return err
	}
	if err := s.until(ctx, "the others run all tasks", s.even); err != nil {
		return err
	}
	s.result("%v later it has left", since(began))
	return nil
}

// outage takes the table away, and gives it back.
func (s *story) outage(ctx context.Context) error {
	began := time.Now()
	s.table.away.Store(true)
	none := func() bool {
		return !slices.ContainsFunc(s.fleet.names(), func(name string) bool { return len(s.journal.runs(name)) > 0 })
	}
	if err := s.until(ctx, "all tasks have stopped", none); err != nil {
		return err
	}
	s.log.Say("%v later all tasks have stopped: no replica runs tasks beyond its lease", since(began))
	if err := s.watch(ctx, 2*s.lease-time.Since(began)); err != nil {
		return err
	}
	began = time.Now()
	s.table.away.Store(false)
	s.log.Say("the table is back")
	if err := s.until(ctx, "the tasks are shared again", s.even); err != nil {
		return err
	}
	s.log.Say("%v later all tasks run again", since(began))
	return nil
}

// freeze stops the process of the leader for longer than its lease, and lets it continue.
func (s *story) freeze(ctx context.Context) error {
	leader := s.journal.leader
	began := time.Now()
	s.journal.frozen = leader
	if err := s.signal(leader, signalFreeze); err != nil {
		return err
	}
	others := slices.DeleteFunc(s.fleet.names(), func(name string) bool { return name == leader })
	if err := s.until(ctx, "the others run all tasks", func() bool { return s.journal.even(others) }); err != nil {
		return err
	}
	s.log.Say("%v later its tasks run elsewhere", since(began))
	if err := s.watch(ctx, watchTime); err != nil {
		return err
	}

	began = time.Now()
	s.journal.frozen = ""
	if err := s.signal(leader, signalContinue); err != nil {
		return err
	}
	s.log.Say("%s continues (SIGCONT): by its own clock its lease is over", leader)
	p := s.fleet.processes[leader]
	if err := s.until(ctx, leader+" has ended or runs tasks again", func() bool { return p.HasEnded() || s.even() }); err != nil {
		return err
	}
	if p.HasEnded() {
		if code := exitCode(p); code != exitExpired {
			return fmt.Errorf("%s has ended with code %d", leader, code)
		}
		if err := s.ended(ctx, leader); err != nil {
			return err
		}
		s.log.Say("it exits with code %d, because its tasks have not stopped in time, and is "+
			"started again, as Kubernetes or systemd would do", exitExpired)
		if err := s.start(ctx, leader); err != nil {
			return err
		}
	}
	if err := s.until(ctx, leader+" has its share again", s.even); err != nil {
		return err
	}
	s.log.Say("%v later it has its share again", since(began))
	return nil
}

// result tells how an event ended, and what happened to the tasks meanwhile.
func (s *story) result(format string, args ...any) {
	s.log.Say("%s: %s", fmt.Sprintf(format, args...), s.journal.summary())
}

// look says which replica runs what, and watches the replicas for some time.
func (s *story) look(ctx context.Context) error {
	for _, name := range s.fleet.names() {
		s.log.Say("%s runs %s", name, strings.Join(s.journal.runs(name), " "))
	}
	return s.watch(ctx, watchTime)
}

// start starts replicas.
func (s *story) start(ctx context.Context, names ...string) error {
	for _, name := range names {
		p, err := s.fleet.start(ctx, name)
		if err != nil {
			return err
		}
		s.log.Say("%s is process %d", name, p.PID())
	}
	return nil
}

// signal sends a signal to a replica.
func (s *story) signal(name string, sig syscall.Signal) error {
	if err := s.fleet.processes[name].Signal(sig); err != nil {
		return fmt.Errorf("send %v to %s: %w", sig, name, err)
	}
	return nil
}

// left waits until a replica has ended, with code 0.
func (s *story) left(ctx context.Context, name string) error {
	p := s.fleet.processes[name]
	if err := s.ended(ctx, name); err != nil {
		return err
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("%s has left: %w", name, err)
	}
	return nil
}

// ended waits until a replica has ended and the journal knows it.
func (s *story) ended(ctx context.Context, name string) error {
	p := s.fleet.processes[name]
	err := s.until(ctx, name+" has ended", func() bool { return p.HasEnded() && len(s.journal.runs(name)) == 0 })
	if err != nil {
		return err
	}
	p.Stop()
	delete(s.fleet.processes, name)
	return nil
}

// exitCode returns the exit code of a process that has ended; -1 after a signal.
func exitCode(p *stage.Process) int {
	if exit, failed := errors.AsType[*exec.ExitError](p.Err()); failed {
		return exit.ExitCode()
	}
	return 0
}

// even reports whether all tasks run, evenly spread over all replicas.
func (s *story) even() bool { return s.journal.even(s.fleet.names()) }

// until reads reports until holds returns true. It returns an error if a task runs
// twice, or if that takes too long.
func (s *story) until(ctx context.Context, what string, holds func() bool) error {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for !holds() {
		if err := s.read(limited, nil); err != nil {
			if ctx.Err() == nil && limited.Err() != nil {
				err = fmt.Errorf("waited %v in vain until %s", timeout, what)
			}
			return err
		}
	}
	return nil
}

// watch reads reports for some time.
func (s *story) watch(ctx context.Context, d time.Duration) error {
	over := time.NewTimer(d)
	defer over.Stop()
	for {
		if err := s.read(ctx, over.C); err != nil {
			if errors.Is(err, errOver) {
				return nil
			}
			return err
		}
	}
}

var errOver = errors.New("the time is over")

// read reads a report, or returns errOver when the time is over.
func (s *story) read(ctx context.Context, over <-chan time.Time) error {
	select {
	case r := <-s.fleet.reports:
		if err := s.journal.observe(r.line, r.at); err != nil {
			return err
		}
		if leader := s.journal.leader; leader != "" && leader != s.told {
			s.log.Say("%s leads", leader)
			s.told = leader
		}
		return nil
	case <-over:
		return errOver
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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
