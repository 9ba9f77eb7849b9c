package orchestrator

import (
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/f8949c05/orchestrator/rebalance"
)

// WorkerSettings holds the settings of a worker without its name, for packages that carry
// them. The zero value is a worker without labels, with a share of 1 and without a limit.
type WorkerSettings struct {
	Zone     string   `json:"zone,omitempty"` // all fields as in [Worker]
	Labels   []string `json:"labels,omitempty"`
	Share    int      `json:"share,omitempty"`
	MaxTasks int      `json:"max_tasks,omitempty"`
	Host     string   `json:"host,omitempty"`
}

// Limits of the settings of tasks and workers.
const (
	// MaxLabels is the most labels of a worker, and the most that a task requires.
	MaxLabels = 64
	// MaxLabelBytes is the most bytes of a label, or of the name of a zone or a host.
	MaxLabelBytes = 256
	// MaxSettingsBytes is the most bytes of the zone, the host and the labels of a worker together. A
	// member sends them with its registration.
	MaxSettingsBytes = 4096
	// MaxShare is the largest share of a worker.
	MaxShare = 1_000_000
	// MaxWeight is the largest weight of a task.
	MaxWeight = rebalance.MaxWeight
)

// Check returns an error that wraps [ErrInvalid] if no worker can have the settings.
func (s WorkerSettings) Check() error {
	if err := checkText("Zone", s.Zone); err != nil {
		return err
	}
	if err := checkText("Host", s.Host); err != nil {
		return err
	}
	if s.Share < 0 || s.Share > MaxShare {
		return invalid("Share is %d: must be between 1 and %d, or 0 for 1", s.Share, MaxShare)
	}
	if s.MaxTasks < 0 || s.MaxTasks > math.MaxInt32 {
		return invalid("MaxTasks is %d: must be between 1 and %d, or 0 for no limit; to run no task, drain the worker", s.MaxTasks, math.MaxInt32)
	}
	if err := checkLabels("Labels", s.Labels, false); err != nil {
		return err
	}
	size := len(s.Zone) + len(s.Host)
	for _, label := range s.Labels {
		size += len(label)
	}
	if size > MaxSettingsBytes {
		return invalid("Zone, Host and Labels have %d bytes: must have at most %d", size, MaxSettingsBytes)
	}
	return nil
}

// IsZero reports whether nothing is set. JSON omits such settings.
func (s WorkerSettings) IsZero() bool {
	return s.Zone == "" && len(s.Labels) == 0 && s.Share == 0 && s.MaxTasks == 0 && s.Host == ""
}

// Normalized returns the same settings with Labels in order and without repetitions, and with
// Share of at least 1. Equal settings are then equal field by field. It does not change
// the slice.
func (s WorkerSettings) Normalized() WorkerSettings {
	s.Labels, s.Share = normalizedLabels(s.Labels), max(s.Share, 1)
	return s
}

// Equal reports whether two settings mean the same.
func (s WorkerSettings) Equal(other WorkerSettings) bool {
	s, other = s.Normalized(), other.Normalized()
	return s.Zone == other.Zone && s.Host == other.Host && s.Share == other.Share && s.MaxTasks == other.MaxTasks &&
		slices.Equal(s.Labels, other.Labels)
}

// checkLabels returns an error for the first invalid label. may: a label may begin with "!".
func checkLabels(field string, labels []string, may bool) error {
	if len(labels) > MaxLabels {
		return invalid("%s has %d labels: must be at most %d", field, len(labels), MaxLabels)
	}
	for _, given := range labels {
		label := given
		if may {
			label = strings.TrimPrefix(label, "!")
		}
		if err := checkText(field, label); err != nil {
			return err
		}
		switch {
		case label == "":
			return invalid("%s has the label %q: must not be empty", field, given)
		case label[0] == '!':
			return invalid("%s has the label %q: the name of a label must not begin with \"!\"", field, given)
		case strings.Contains(label, ","):
			return invalid("%s has the label %q: must not contain a comma", field, given)
		}
	}
	return nil
}

// checkText returns an error if no label and no zone can have a text.
func checkText(field, text string) error {
	switch {
	case len(text) > MaxLabelBytes:
		return invalid("%s %q has %d bytes: must have at most %d", field, text[:32]+"...", len(text), MaxLabelBytes)
	case !utf8.ValidString(text):
		return invalid("%s %q is not UTF-8", field, text)
	case strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }):
		return invalid("%s %q contains a character that is not printable", field, text)
	case strings.TrimSpace(text) != text:
		return invalid("%s %q begins or ends with a space", field, text)
	}
	return nil
}

// checkWeight returns an error if no task can have a weight.
func checkWeight(weight int64) error {
	if weight < 0 || weight > MaxWeight {
		return invalid("Weight is %d: must be between 0 and %d", weight, int64(MaxWeight))
	}
	return nil
}

// normalizedLabels returns labels in order and without repetitions; nil without any.
func normalizedLabels(labels []string) []string {
	if len(labels) == 0 {
		return nil
	}
	for i, label := range labels[1:] {
		if labels[i] >= label {
			return slices.Compact(slices.Sorted(slices.Values(labels)))
		}
	}
	return labels
}

// NewTask returns a task with a name and settings.
func NewTask[T comparable](name T, s TaskSettings) Task[T] {
	return Task[T]{name, s.Instances, s.Handoff, s.Requires, s.MaxPerZone, s.Weight}
}

// NewWorker returns a worker with a name and settings. draining is as in [Worker].
func NewWorker[W comparable](name W, draining bool, s WorkerSettings) Worker[W] {
	return Worker[W]{name, draining, s.Zone, s.Labels, s.Share, s.MaxTasks, s.Host}
}

// WithTaskSettings sets all settings of the task.
func WithTaskSettings(s TaskSettings) TaskOption {
	return taskOption(func(c *taskConfig) error {
		c.TaskSettings = s.Normalized()
		return optionError("WithTaskSettings", s.Check())
	})
}

// WithWorkerSettings sets all settings of the worker. It does not change whether the worker
// drains.
func WithWorkerSettings(s WorkerSettings) WorkerOption {
	return workerOption(func(c *workerConfig) error {
		c.WorkerSettings = s.Normalized()
		return optionError("WithWorkerSettings", s.Check())
	})
}
