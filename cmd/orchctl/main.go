package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second interrupt ends the process
	p := &process{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, dial: new(net.Dialer).DialContext,
	}
	_, reads := terminal(os.Stdin)
	_, shows := terminal(os.Stderr)
	p.asks = reads && shows
	if width, ok := terminal(os.Stdout); ok {
		p.screen = screen{width: width, colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	}
	os.Exit(p.run(ctx, os.Args[1:]))
}

// process is what the command has from its caller.
type process struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	dial           dialer
	screen         screen // what stdout is
	asks           bool   // a person can answer questions
}

// screen is a terminal.
type screen struct {
	width  int // columns; 0: no terminal
	colour bool
}

// The exit codes.
const (
	exitDone        = 0
	exitFailed      = 1 // or refused
	exitUsage       = 2
	exitUnknown     = 3 // no such worker or task
	exitUnreachable = 4 // no address answers, or no process leads
	exitFound       = 5 // status -check found a problem
	exitLate        = 6 // the wait ended first
)

// exitError is an error with an exit code.
type exitError struct {
	code int
	error
}

func (e *exitError) Unwrap() error { return e.error }

func fail(code int, format string, args ...any) error {
	return &exitError{code, fmt.Errorf(format, args...)}
}

// exitCode returns the code for an error.
func exitCode(err error) int {
	var exit *exitError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &exit):
		return exit.code
	}
	return exitFailed
}

// errFound makes the process end with exitFound, without a message.
var errFound = &exitError{exitFound, errors.New("found problems")}

// settings holds the flags of all commands.
type settings struct {
	server, tokenFile string
	insecure          bool
	ca, cert, key     string
	format            string
	timeout           time.Duration
	log               handled // of replay: answers in place of a server
}

// flags defines the flags with the present values as defaults, so that they can stand before
// and after the command.
func (s *settings) flags(f *flag.FlagSet) {
	f.StringVar(&s.server, "server", s.server, "the dashboard's `address`: http(s)://host:port/path or unix:///run/x.sock; several, separated by commas, are tried in turn (default: $ORCHCTL_SERVER)")
	f.StringVar(&s.tokenFile, "token-file", s.tokenFile, "the `file` with the token (default: $ORCHCTL_TOKEN_FILE)")
	f.BoolVar(&s.insecure, "insecure-token", s.insecure, "send the token to other machines over http too, where it can be read on the way")
	f.StringVar(&s.ca, "ca", s.ca, "the `file` with the only authority to trust (default: those of the system)")
	f.StringVar(&s.cert, "cert", s.cert, "the `file` with the client's certificate")
	f.StringVar(&s.key, "key", s.key, "the `file` with the certificate's key")
	f.StringVar(&s.format, "o", s.format, "the output: table, json, or name for only the names")
	f.DurationVar(&s.timeout, "timeout", s.timeout, "the longest time to wait for an answer")
}

// check returns the first error in the flags.
func (s *settings) check(c *command) error {
	switch {
	case s.format != formatTable && s.format != formatJSON && s.format != formatName:
		return fmt.Errorf("-o %s: must be table, json or name", s.format)
	case s.format == formatName && !c.names:
		return fmt.Errorf("-o name: %s has no names to print", c.name)
	case s.timeout <= 0:
		return fmt.Errorf("-timeout %v: must be more than 0", s.timeout)
	case (s.cert == "") != (s.key == ""):
		return errors.New("-cert and -key belong together")
	case s.server == "" && !c.local && s.log.Handler == nil:
		return errors.New("no address: give -server or set ORCHCTL_SERVER")
	}
	return nil
}

// command is a command. Its function define adds its flags, and returns what to do with the
// arguments.
type command struct {
	name, args, short string
	min, max          int // arguments; max -1: any number
	names             bool
	local             bool // asks no server
	replays           bool // a log can answer it
	nested            bool // the arguments after the first are another command
	define            func(f *flag.FlagSet) action
}

// action does what a command says.
type action func(ctx context.Context, s *session, args []string) error

// commands returns all commands, in the order of the usage.
func commands() []command {
	return []command{
		{name: "status", short: "what needs a person, and the figures of the fleet", define: status},
		{name: "workers", short: "the workers, those with problems first", names: true, replays: true, define: list("workers", "", maxRows, workerFlags)},
		{name: "worker", args: "NAME", short: "one worker: its state, its tasks and what came and went", min: 1, max: 1, names: true, replays: true, define: one("worker", "")},
		{name: "tasks", args: "[PATTERN]", short: "the tasks whose name contains PATTERN", max: 1, names: true, define: list("tasks", "", maxRows, nil)},
		{name: "task", args: "NAME", short: "one task: where it runs, what it waits for, its history", min: 1, max: 1, names: true, replays: true, define: one("task", "")},
		{name: "why", args: "NAME", short: "why each worker has the task or not", min: 1, max: 1, names: true, define: one("task", "why")},
		{name: "terms", short: "the last terms", names: true, replays: true, define: list("terms", "", 20, nil)},
		{name: "changes", short: "the last starts, stops and moves", names: true, replays: true, define: list("changes", "", 100, changeFlags)},
		{name: "waiting", short: "the instances without a place, and why", names: true, replays: true, define: list("tasks", "waiting", maxRows, waitingFlags)},
		{name: "quarantined", short: "the workers that receive no tasks because starts failed", names: true, replays: true, define: list("workers", "quarantined", maxRows, quarantinedFlags)},
		{name: "what-if", short: "what the next term would do if workers drained, were lost or joined", names: true, define: whatIf},
		{name: "drain", args: "WORKER…", short: "move all tasks away from workers, and wait until they are empty", min: 1, max: -1, names: true, define: drain},
		{name: "undrain", args: "WORKER…", short: "let drained workers receive tasks again", min: 1, max: -1, names: true, define: undrain},
		{name: "watch", short: "print changes as they happen, until interrupted", define: watch},
		{name: "replay", args: "FILE [COMMAND]", short: "what the last terms in a log file of package history say to a command, or to terms", min: 1, max: -1, names: true, local: true, nested: true, define: replay},
		{name: "version", short: "the version of this program", local: true, define: version},
	}
}

// run runs the command in args, and returns the exit code.
func (p *process) run(ctx context.Context, args []string) int {
	err := p.command(ctx, args)
	code := exitCode(err)
	switch {
	case err == nil || errors.Is(err, errFound):
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case errors.Is(err, context.Canceled):
		_, _ = fmt.Fprintln(p.stderr, "orchctl: interrupted")
	default:
		_, _ = fmt.Fprintln(p.stderr, "orchctl:", err)
	}
	return code
}

func (p *process) command(ctx context.Context, args []string) error {
	s := settings{server: p.getenv("ORCHCTL_SERVER"), tokenFile: p.getenv("ORCHCTL_TOKEN_FILE"), format: formatTable, timeout: 10 * time.Second}
	global := flag.NewFlagSet("orchctl", flag.ContinueOnError)
	s.flags(global)
	global.SetOutput(io.Discard) // the error is printed by run
	if err := global.Parse(args); errors.Is(err, flag.ErrHelp) {
		return p.help(global)
	} else if err != nil {
		return fail(exitUsage, "%w; see orchctl help", err)
	}
	rest := global.Args()
	switch {
	case len(rest) == 0:
		_ = p.help(global)
		return fail(exitUsage, "a command is missing")
	case rest[0] == "help" && len(rest) == 1:
		return p.help(global)
	case rest[0] == "help":
		rest = []string{rest[1], "-h"}
	}
	for _, c := range commands() {
		if c.name == rest[0] {
			return p.execute(ctx, &c, &s, rest[1:])
		}
	}
	return fail(exitUsage, "no command %q; see orchctl help", rest[0])
}

// execute parses the flags and arguments of a command, and runs it.
func (p *process) execute(ctx context.Context, c *command, s *settings, args []string) error {
	own := flag.NewFlagSet(c.name, flag.ContinueOnError)
	action := c.define(own)
	all := flag.NewFlagSet(c.name, flag.ContinueOnError)
	own.VisitAll(func(f *flag.Flag) { all.Var(f.Value, f.Name, f.Usage) })
	s.flags(all)
	all.SetOutput(io.Discard)
	names, err := parse(all, args, c.nested)
	switch {
	case errors.Is(err, flag.ErrHelp):
		p.usage(c, own)
		return err
	case err == nil && len(names) < c.min:
		err = fmt.Errorf("%s is missing", strings.Fields(c.args)[0])
	case err == nil && c.max >= 0 && len(names) > c.max:
		err = fmt.Errorf("unexpected argument %q", names[c.max])
	case err == nil:
		err = s.check(c)
	}
	if err != nil {
		return fail(exitUsage, "%s: %w; see orchctl %s -h", c.name, err, c.name)
	}
	one := &session{process: p, settings: s}
	switch {
	case s.log.Handler != nil:
		one.client = s.log.client(s)
	case !c.local:
		if one.client, err = newClient(s, p.dial); err != nil {
			return fail(exitUsage, "%w", err)
		}
		defer one.close()
	}
	return action(ctx, one, names)
}

// usage prints the usage of a command with its own flags.
func (p *process) usage(c *command, own *flag.FlagSet) {
	line := strings.TrimRight(c.name+" [flags] "+c.args, " ")
	_, _ = fmt.Fprintf(p.stderr, "usage: orchctl %s\n\n%s%s.\nThe flags of all commands are in orchctl help.\n\n", line, strings.ToUpper(c.short[:1]), c.short[1:])
	own.SetOutput(p.stderr)
	own.PrintDefaults()
}

// parse parses flags that stand before, between and after the arguments, or only before them,
// and returns the arguments. After "--" all are arguments.
func parse(f *flag.FlagSet, args []string, before bool) (names []string, err error) {
	for {
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		rest := f.Args()
		read := len(args) - len(rest)
		if before || len(rest) == 0 || read > 0 && args[read-1] == "--" {
			return append(names, rest...), nil
		}
		names, args = append(names, rest[0]), rest[1:]
	}
}

// help prints the usage of the program.
func (p *process) help(global *flag.FlagSet) error {
	_, _ = fmt.Fprint(p.stderr, "usage: orchctl [flags] COMMAND [flags] [arguments]\n\nOrchctl shows and steers a fleet through its dashboard.\n\n")
	for _, c := range commands() {
		_, _ = fmt.Fprintf(p.stderr, "  %-21s %s\n", strings.TrimRight(c.name+" "+c.args, " "), c.short)
	}
	_, _ = fmt.Fprint(p.stderr, "\nOrchctl COMMAND -h says more. Flags of all commands:\n\n")
	global.SetOutput(p.stderr)
	global.PrintDefaults()
	_, _ = fmt.Fprint(p.stderr, `
Exit codes: 0 done; 1 failed or refused; 2 wrong usage; 3 no such worker or task;
4 no address answers, or no process leads; 5 status -check found a problem;
6 the wait ended before the workers were empty.
`)
	return nil
}

// session is one run of a command.
type session struct {
	*process
	*client  // nil if the command asks no server
	settings *settings
	silent   bool // no server answers, and that was said
}

// say prints a line that is not output.
func (s *session) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.stderr, format+"\n", args...)
}
