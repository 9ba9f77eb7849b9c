package keys

// The keys under a prefix: made from names, and taken apart.

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Format is the value of the format key.
const Format = "orchestrator 1"

// Kind says what a key stands for.
type Kind int

// The kinds of keys, in no order.
const (
	Unknown Kind = iota
	FormatKey
	Registry
	Tasks
	Member
	Load
	Assigned
	Active
	Refused
	Drain
	Term
	Begun
	Leader
)

// Layout is the layout under one prefix. The zero Layout is not usable.
type Layout struct{ prefix string }

// New returns the layout under prefix, which has to be printable UTF-8, end in
// a slash and be more than that.
func New(prefix string) (Layout, error) {
	switch {
	case !strings.HasSuffix(prefix, "/"):
		return Layout{}, fmt.Errorf("prefix %q: has to end in a slash", prefix)
	case strings.Trim(prefix, "/") == "":
		return Layout{}, fmt.Errorf("prefix %q: has to be more than slashes", prefix)
	case !utf8.ValidString(prefix) || strings.ContainsFunc(prefix, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return Layout{}, fmt.Errorf("prefix %q: has to be printable UTF-8 without spaces", prefix)
	}
	return Layout{prefix}, nil
}

// Prefix returns what all keys begin with.
func (l Layout) Prefix() string { return l.prefix }

// Format returns the key that says what the prefix is used by.
func (l Layout) Format() string { return l.prefix + "format" }

// Term returns the key of the term's number.
func (l Layout) Term() string { return l.prefix + "term" }

// Begun returns the key of the same number, among those that a leader watches.
// Term is beyond the registry, whose contents he is not to be sent.
func (l Layout) Begun() string { return l.prefix + "begun" }

// Leader returns the key of the candidate with this lease, as etcd's own
// election names it: the lease in hexadecimal.
func (l Layout) Leader(lease int64) string { return fmt.Sprintf("%s%x", l.Leaders(), lease) }

// Registry returns the key of a task's content.
func (l Layout) Registry(task string) string { return l.RegistryPrefix() + Escape(task) }

// Tasks returns the key of a task's settings.
func (l Layout) Tasks(task string) string { return l.TasksPrefix() + Escape(task) }

// Member returns the key that a worker is a member by.
func (l Layout) Member(worker string) string { return l.MembersPrefix() + Escape(worker) }

// Load returns the key of a worker's load.
func (l Layout) Load(worker string) string { return l.LoadPrefix() + Escape(worker) }

// Drain returns the key that has a worker end empty.
func (l Layout) Drain(worker string) string { return l.DrainsPrefix() + Escape(worker) }

// Assigned returns the key by which a leader wants a task on a worker.
func (l Layout) Assigned(worker, task string) string { return l.AssignedOf(worker) + Escape(task) }

// Active returns the key by which a worker claims a task.
func (l Layout) Active(worker, task string) string { return l.ActiveOf(worker) + Escape(task) }

// Refused returns the key that says why a worker did not take a task.
func (l Layout) Refused(worker, task string) string { return l.RefusedOf(worker) + Escape(task) }

// AssignedOf returns what the keys of all that is wanted on a worker begin with.
func (l Layout) AssignedOf(worker string) string { return l.AssignedPrefix() + Escape(worker) + "/" }

// ActiveOf returns what the keys of all that a worker has claimed begin with.
func (l Layout) ActiveOf(worker string) string { return l.ActivePrefix() + Escape(worker) + "/" }

// RefusedOf returns what the keys of all that a worker refused begin with.
func (l Layout) RefusedOf(worker string) string { return l.RefusedPrefix() + Escape(worker) + "/" }

// Leaders returns what the candidates' keys begin with.
func (l Layout) Leaders() string { return l.prefix + "leader/" }

// RegistryPrefix returns what the keys of contents begin with.
func (l Layout) RegistryPrefix() string { return l.prefix + "registry/" }

// TasksPrefix returns what the keys of settings begin with.
func (l Layout) TasksPrefix() string { return l.prefix + "tasks/" }

// MembersPrefix returns what the members' keys begin with.
func (l Layout) MembersPrefix() string { return l.prefix + "members/" }

// LoadPrefix returns what the keys of loads begin with.
func (l Layout) LoadPrefix() string { return l.prefix + "workers/" }

// AssignedPrefix returns what the keys of all that is wanted begin with.
func (l Layout) AssignedPrefix() string { return l.prefix + "assigned/" }

// ActivePrefix returns what the keys of all claims begin with.
func (l Layout) ActivePrefix() string { return l.prefix + "active/" }

// RefusedPrefix returns what the keys of all refusals begin with.
func (l Layout) RefusedPrefix() string { return l.prefix + "refused/" }

// DrainsPrefix returns what the keys of drains begin with.
func (l Layout) DrainsPrefix() string { return l.prefix + "drains/" }

// Parse says what key stands for, and gives back the names in it. It reports
// false, with Unknown, for a key that no method of the layout returns. A
// leader's key has no names.
func (l Layout) Parse(key string) (kind Kind, worker, task string, ok bool) {
	rest, ok := strings.CutPrefix(key, l.prefix)
	if !ok {
		return Unknown, "", "", false
	}
	switch rest {
	case "format":
		return FormatKey, "", "", true
	case "term":
		return Term, "", "", true
	case "begun":
		return Begun, "", "", true
	}
	dir, rest, ok := strings.Cut(rest, "/")
	if !ok {
		return Unknown, "", "", false
	}
	var err error
	switch dir {
	case "registry":
		kind = Registry
		task, err = Unescape(rest)
	case "tasks":
		kind = Tasks
		task, err = Unescape(rest)
	case "members":
		kind = Member
		worker, err = Unescape(rest)
	case "workers":
		kind = Load
		worker, err = Unescape(rest)
	case "drains":
		kind = Drain
		worker, err = Unescape(rest)
	case "assigned":
		kind = Assigned
		worker, task, err = unescapeTwo(rest)
	case "active":
		kind = Active
		worker, task, err = unescapeTwo(rest)
	case "refused":
		kind = Refused
		worker, task, err = unescapeTwo(rest)
	case "leader":
		if rest == "" || strings.Trim(rest, "0123456789abcdef") != "" {
			return Unknown, "", "", false
		}
		return Leader, "", "", true
	default:
		return Unknown, "", "", false
	}
	if err != nil {
		return Unknown, "", "", false
	}
	return kind, worker, task, true
}

func unescapeTwo(s string) (worker, task string, err error) {
	first, second, ok := strings.Cut(s, "/")
	if !ok {
		return "", "", errors.New("one name where there have to be two")
	}
	if worker, err = Unescape(first); err != nil {
		return "", "", err
	}
	task, err = Unescape(second)
	return worker, task, err
}
