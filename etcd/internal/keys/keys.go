// Package keys defines the layout of the keys in etcd under one prefix, and how
// names are escaped in keys. The documentation of package etcd lists the keys.
package keys

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Format is the value of the format key.
const Format = "orchestrator 1"

// Kind is the kind of a key.
type Kind int

// The kinds of keys.
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

// New returns the layout under prefix. The prefix must be printable UTF-8 without
// spaces, end in a slash and contain more than slashes.
func New(prefix string) (Layout, error) {
	switch {
	case !strings.HasSuffix(prefix, "/"):
		return Layout{}, fmt.Errorf("prefix %q: must end in a slash", prefix)
	case strings.Trim(prefix, "/") == "":
		return Layout{}, fmt.Errorf("prefix %q: must contain more than slashes", prefix)
	case !utf8.ValidString(prefix) || strings.ContainsFunc(prefix, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return Layout{}, fmt.Errorf("prefix %q: must be printable UTF-8 without spaces", prefix)
	}
	return Layout{prefix}, nil
}

// Prefix returns the prefix of all keys.
func (l Layout) Prefix() string { return l.prefix }

// Format returns the key that identifies the user of the prefix.
func (l Layout) Format() string { return l.prefix + "format" }

// Term returns the key of the term's number.
func (l Layout) Term() string { return l.prefix + "term" }

// Begun returns a second key for the term's number, in the range that a leader
// watches. Term is not in that range, because it lies beyond the registry, whose
// contents the leader must not receive.
func (l Layout) Begun() string { return l.prefix + "begun" }

// Leader returns the key of the candidate with this lease. Like etcd's own election,
// it contains the lease in hexadecimal.
func (l Layout) Leader(lease int64) string { return fmt.Sprintf("%s%x", l.Leaders(), lease) }

// Registry returns the key of a task's content.
func (l Layout) Registry(task string) string { return l.RegistryPrefix() + Escape(task) }

// Tasks returns the key of a task's settings.
func (l Layout) Tasks(task string) string { return l.TasksPrefix() + Escape(task) }

// Member returns the key of a worker's membership.
func (l Layout) Member(worker string) string { return l.MembersPrefix() + Escape(worker) }

// Load returns the key of a worker's load.
func (l Layout) Load(worker string) string { return l.LoadPrefix() + Escape(worker) }

// Drain returns the key of a worker's drain.
func (l Layout) Drain(worker string) string { return l.DrainsPrefix() + Escape(worker) }

// Assigned returns the key of the assignment of a task to a worker.
func (l Layout) Assigned(worker, task string) string { return l.AssignedOf(worker) + Escape(task) }

// Active returns the key of a worker's claim of a task.
func (l Layout) Active(worker, task string) string { return l.ActiveOf(worker) + Escape(task) }

// Refused returns the key of a worker's refusal of a task.
func (l Layout) Refused(worker, task string) string { return l.RefusedOf(worker) + Escape(task) }

// AssignedOf returns the prefix of a worker's assignments.
func (l Layout) AssignedOf(worker string) string { return l.AssignedPrefix() + Escape(worker) + "/" }

// ActiveOf returns the prefix of a worker's claims.
func (l Layout) ActiveOf(worker string) string { return l.ActivePrefix() + Escape(worker) + "/" }

// RefusedOf returns the prefix of a worker's refusals.
func (l Layout) RefusedOf(worker string) string { return l.RefusedPrefix() + Escape(worker) + "/" }

// Leaders returns the prefix of the candidates' keys.
func (l Layout) Leaders() string { return l.prefix + "leader/" }

// RegistryPrefix returns the prefix of all contents.
func (l Layout) RegistryPrefix() string { return l.prefix + "registry/" }

// TasksPrefix returns the prefix of all settings.
func (l Layout) TasksPrefix() string { return l.prefix + "tasks/" }

// MembersPrefix returns the prefix of all memberships.
func (l Layout) MembersPrefix() string { return l.prefix + "members/" }

// LoadPrefix returns the prefix of all loads.
func (l Layout) LoadPrefix() string { return l.prefix + "workers/" }

// AssignedPrefix returns the prefix of all assignments.
func (l Layout) AssignedPrefix() string { return l.prefix + "assigned/" }

// ActivePrefix returns the prefix of all claims.
func (l Layout) ActivePrefix() string { return l.prefix + "active/" }

// RefusedPrefix returns the prefix of all refusals.
func (l Layout) RefusedPrefix() string { return l.prefix + "refused/" }

// DrainsPrefix returns the prefix of all drains.
func (l Layout) DrainsPrefix() string { return l.prefix + "drains/" }

// Parse returns the kind of a key and the names in it. It returns Unknown and false
// for a key that no method of the layout returns. A leader's key contains no names.
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
	switch kind = kindOf(dir); kind {
	case Registry, Tasks:
		task, err = Unescape(rest)
	case Member, Load, Drain:
		worker, err = Unescape(rest)
	case Assigned, Active, Refused:
		worker, task, err = unescapeTwo(rest)
	case Leader:
		if rest == "" || strings.Trim(rest, "0123456789abcdef") != "" {
			err = errors.New("not a lease")
		}
	default:
		err = errors.New("not a kind of key")
	}
	if err != nil {
		return Unknown, "", "", false
	}
	return kind, worker, task, true
}

// kindOf returns the kind of the keys in a folder, or Unknown.
func kindOf(dir string) Kind {
	switch dir {
	case "registry":
		return Registry
	case "tasks":
		return Tasks
	case "members":
		return Member
	case "workers":
		return Load
	case "drains":
		return Drain
	case "assigned":
		return Assigned
	case "active":
		return Active
	case "refused":
		return Refused
	case "leader":
		return Leader
	}
	return Unknown
}

func unescapeTwo(s string) (worker, task string, err error) {
	first, second, ok := strings.Cut(s, "/")
	if !ok {
		return "", "", errors.New("one name instead of two")
	}
	if worker, err = Unescape(first); err != nil {
		return "", "", err
	}
	task, err = Unescape(second)
	return worker, task, err
}

const hex = "0123456789ABCDEF"

// plain reports whether c needs no escape: it is common in names, and has no meaning
// to a shell or to etcdctl.
func plain(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("-_.:@+=,", c) >= 0
}

// Escape returns name as one segment of a key. Letters, digits and -_.:@+=, stay;
// every other byte becomes % and two hexadecimal digits. Different names have
// different segments. The empty name has an empty segment, so callers must reject
// it.
func Escape(name string) string {
	escapes := 0
	for i := range len(name) {
		if !plain(name[i]) {
			escapes++
		}
	}
	if escapes == 0 {
		return name
	}
	segment := make([]byte, 0, len(name)+2*escapes)
	for i := range len(name) {
		if c := name[i]; plain(c) {
			segment = append(segment, c)
		} else {
			segment = append(segment, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(segment)
}

// Unescape returns the name of a segment. It fails for the empty segment, and for
// every segment that Escape does not return, so that no name has two keys.
func Unescape(segment string) (string, error) {
	if segment == "" {
		return "", errors.New("empty name")
	}
	if strings.IndexByte(segment, '%') < 0 {
		for i := range len(segment) {
			if !plain(segment[i]) {
				return "", fmt.Errorf("%q is not escaped at byte %d", segment, i)
			}
		}
		return segment, nil
	}
	name := make([]byte, 0, len(segment))
	for i := 0; i < len(segment); i++ {
		c := segment[i]
		if c == '%' {
			if i+2 >= len(segment) {
				return "", fmt.Errorf("%q ends inside an escape", segment)
			}
			high, low := strings.IndexByte(hex, segment[i+1]), strings.IndexByte(hex, segment[i+2])
			if high < 0 || low < 0 || plain(byte(high<<4|low)) {
				return "", fmt.Errorf("%q has no valid escape at byte %d", segment, i)
			}
			c = byte(high<<4 | low)
			i += 2
		} else if !plain(c) {
			return "", fmt.Errorf("%q is not escaped at byte %d", segment, i)
		}
		name = append(name, c)
	}
	return string(name), nil
}
