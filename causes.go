package orchestrator

// Why an instance has no place.

import (
	"fmt"
	"strings"
)

// Causes says why no open worker takes an instance. It counts each open worker under the first
// cause that applies, in the order of the fields, so that the counts add up to Workers. String
// returns a sentence.
type Causes struct {
	// Workers is how many workers are open: they answer and do not drain.
	Workers int `json:"workers"`
	// Lacking counts the workers whose labels do not fit, by the first required label that
	// they do not fulfil.
	Lacking []LabelCount `json:"lacking,omitempty"`
	// ZoneFull counts the workers in a zone with MaxPerZone instances of the task.
	ZoneFull int `json:"zone_full,omitempty"`
	// NoRoom counts the workers with MaxTasks tasks.
	NoRoom int `json:"no_room,omitempty"`
	// Running counts the workers that run an instance of the task already.
	Running int `json:"running,omitempty"`
	// Quarantined counts the workers that receive no tasks because they failed to start some,
	// and Paused those on which the task pauses because it failed to start.
	Quarantined int `json:"quarantined,omitempty"`
	Paused      int `json:"paused,omitempty"`
	// Free counts the workers that may take the instance in a later term, such as when
	// moves that wait have made room.
	Free int `json:"free,omitempty"`
}

// LabelCount is a label as a task requires it, and the number of workers that do not fulfil it.
type LabelCount struct {
	Label   string `json:"label"`
	Workers int    `json:"workers"`
}

// String returns a sentence such as
//
//	of 12 open workers 8 lack "gpu", 3 are in a full zone, 1 runs an instance already
func (c Causes) String() string {
	if c.Workers == 0 {
		return "no worker is open"
	}
	var parts []string
	add := func(n int, one, many string) {
		switch n {
		case 0:
		case 1:
			parts = append(parts, "1 "+one)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, many))
		}
	}
	for _, l := range c.Lacking {
		if label, not := strings.CutPrefix(l.Label, "!"); not {
			add(l.Workers, fmt.Sprintf("has %q", label), fmt.Sprintf("have %q", label))
		} else {
			add(l.Workers, fmt.Sprintf("lacks %q", label), fmt.Sprintf("lack %q", label))
		}
	}
	add(c.ZoneFull, "is in a full zone", "are in a full zone")
	add(c.NoRoom, "has no room", "have no room")
	add(c.Running, "runs an instance already", "run an instance already")
	add(c.Quarantined, "is quarantined", "are quarantined")
	add(c.Paused, "is paused for the task", "are paused for the task")
	add(c.Free, "may take it later", "may take it later")
	open := fmt.Sprintf("of %d open workers ", c.Workers)
	if c.Workers == 1 {
		open = "of 1 open worker "
	}
	return open + strings.Join(parts, ", ")
}
