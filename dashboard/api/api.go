package api

import (
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/history"
)

type (
	// Plan is a plan with strings as names.
	Plan = orchestrator.Plan[string, string]
	// Change is one start, stop or move of an instance.
	Change = orchestrator.Change[string, string]
	// Waiting is one or more instances of a task without a place.
	Waiting = orchestrator.Waiting[string, string]
	// Pause is what terms leave alone for a while, because it failed.
	Pause = orchestrator.Pause[string, string]
	// Progress is a term under way.
	Progress = orchestrator.Progress[string]
	// WorkerReason is why a worker has a task or not.
	WorkerReason = orchestrator.WorkerReason[Name]
	// LoadPoint is a worker's number of tasks from a time on.
	LoadPoint = history.Load
	// WorkerEvent is a change of a worker's condition in a term.
	WorkerEvent = history.WorkerEvent
)

// Header is part of each answer: the term that it shows.
type Header struct {
	// Term is the last term of the leader that answers; zero before the first one.
	Term orchestrator.Term `json:"term"`
	// Observed: the process does not lead. The answer has no changes, and not the reasons of
	// the leader.
	Observed bool `json:"observed,omitempty"`
	// Leader is the address or the name of the process that leads, if it is another one and
	// known.
	Leader string `json:"leader,omitempty"`
	// Start and Took are those of the term, and Now is the time of the answer, by the
	// leader's clock.
	Start time.Time     `json:"start,omitzero"`
	Took  time.Duration `json:"took_ns,omitempty"`
	Now   time.Time     `json:"now"`
}

// Current is the answer to GET api/v1/progress, which is small and always up to date: the
// last term and the term under way.
type Current struct {
	Header
	// Tag is the entity tag that the other answers have until the next term ends.
	Tag      string    `json:"tag"`
	Progress *Progress `json:"progress,omitempty"` // nil between terms
}

// Page is a part of a list. Total counts the rows of the whole list, and Matching those that
// the query selects. If there are more rows, After is the value of the parameter "after"
// that continues the list.
type Page struct {
	Total    int    `json:"total"`
	Matching int    `json:"matching"`
	After    string `json:"after,omitempty"`
}

// Status is the answer to GET api/v1/status.
type Status struct {
	Header
	Title string `json:"title"`
	// Summary is the state of the fleet in one sentence.
	Summary string `json:"summary"`
	// Progress is the term under way; nil between terms.
	Progress *Progress `json:"progress,omitempty"`
	// Problems are what needs a person, one for each cause, the worst first and at most
	// eight of them. ProblemsTotal counts all.
	Problems      []Problem                  `json:"problems"`
	ProblemsTotal int                        `json:"problems_total"`
	Workers       orchestrator.WorkerStats   `json:"workers"`
	Instances     orchestrator.InstanceStats `json:"instances"`
	// Holds is why moves for an even spread wait, at most eight reasons, and MovesHeld counts the
	// moves. That is no problem by itself.
	Holds     []orchestrator.Hold `json:"holds,omitempty"`
	MovesHeld int                 `json:"moves_held,omitempty"`
	// HeldSince is since when there is a hold, as far as the history goes.
	HeldSince time.Time `json:"held_since,omitzero"`
	// Crashing counts the tasks whose runs fail again and again.
	Crashing int `json:"crashing,omitempty"`
	// HighestLoad and OutOfBand are as in orchestrator.TermStats.
	HighestLoad float64 `json:"highest_load,omitempty"`
	OutOfBand   int     `json:"out_of_band,omitempty"`
	// Changes are the last ones, the newest first and at most twelve.
	Changes []RepeatedChange `json:"changes"`
}

// Problem is something that needs a person.
type Problem struct {
	Kind ProblemKind `json:"kind"`
	// Text is one line that says what happened, to what, and why. It stays the same while only the
	// counters below change.
	Text string `json:"text"`
	// Workers and Tasks name what it concerns, at most eight of each. The totals count all.
	Workers      []Name `json:"workers,omitempty"`
	WorkersTotal int    `json:"workers_total,omitempty"`
	Tasks        []Name `json:"tasks,omitempty"`
	TasksTotal   int    `json:"tasks_total,omitempty"`
	// Instances counts the instances that are missing, held or stay because of it.
	Instances int       `json:"instances,omitempty"`
	Since     time.Time `json:"since,omitzero"` // zero: not known
	// Tried is what is tried again and again: "starts", "stops" or "runs". Tries counts those that
	// failed in a row, on TriedBy workers, as far as they are known; of runs it is the most of one task.
	// NextTry is about when the next one begins. They are zero without any.
	Tried   string    `json:"tried,omitempty"`
	Tries   int       `json:"tries,omitempty"`
	TriedBy int       `json:"tried_by,omitempty"`
	NextTry time.Time `json:"next_try,omitzero"`
}

// ProblemKind is the kind of a problem.
type ProblemKind string

// The kinds of problems, the worst first.
const (
	ProblemMassLoss    ProblemKind = "mass loss"
	ProblemNoTerms     ProblemKind = "no terms"    // none for three intervals
	ProblemCut         ProblemKind = "term cut"    // the last term ended early or failed
	ProblemLost        ProblemKind = "lost"        // workers
	ProblemUnplaced    ProblemKind = "unplaced"    // instances without a place
	ProblemFailing     ProblemKind = "failing"     // starts or runs that fail
	ProblemSilent      ProblemKind = "silent"      // workers
	ProblemStuck       ProblemKind = "stuck"       // workers with a call that does not return
	ProblemLate        ProblemKind = "late"        // workers that a term did not wait for
	ProblemQuarantined ProblemKind = "quarantined" // workers
	ProblemStaying     ProblemKind = "staying"     // instances that a draining worker cannot hand on
	ProblemBand        ProblemKind = "out of band" // workers that weigh too much or too little, and moves would help
	ProblemDeferred    ProblemKind = "deferred"    // moves that wait
	ProblemDuplicate   ProblemKind = "duplicate"   // tasks that a worker lists twice
	ProblemUnexpected  ProblemKind = "unexpected"  // tasks that are not expected
)

// RepeatedChange is a change, and how often it was made in a row of terms.
type RepeatedChange struct {
	Change Change            `json:"change"`
	Term   orchestrator.Term `json:"term"` // of the last time
	Times  int               `json:"times"`
	// Cause is what made the spread uneven, of a move for an even spread; nil if the history does not have it.
	Cause *history.Cause `json:"cause,omitempty"`
}

// Workers is the answer to GET api/v1/workers.
type Workers struct {
	Header
	Page
	Workers []Worker `json:"workers"`
}

// Worker is a worker, as the term left it.
type Worker struct {
	Name
	State       orchestrator.State `json:"state"`
	Late        bool               `json:"late,omitempty"`
	Draining    bool               `json:"draining,omitempty"`
	Quarantined bool               `json:"quarantined,omitempty"`
	Stuck       bool               `json:"stuck,omitempty"`
	// Quarantine says why it is quarantined, and for how long. It is nil otherwise.
	Quarantine *Pause `json:"quarantine,omitempty"`
	// Fallen says that it fell again within ten minutes, and until when it gains nothing
	// for an even spread. It is nil otherwise.
	Fallen *Pause `json:"fallen,omitempty"`
	// Since and SinceTerm say when it entered the state.
	Since     time.Time `json:"since,omitzero"`
	SinceTerm uint64    `json:"since_term,omitempty"`
	// Err is why it did not answer.
	Err string `json:"err,omitempty"`
	// LastAnswer is zero if it never answered. ListTook is how long that call took.
	LastAnswer time.Time     `json:"last_answer,omitzero"`
	ListTook   time.Duration `json:"list_took_ns,omitempty"`
	// Tasks counts its tasks. A lost worker has none.
	Tasks int `json:"tasks"`
	// Settings are the zone, the labels, the share and the limit; zero without any.
	Settings orchestrator.WorkerSettings `json:"settings,omitzero"`
	// Weight is what its tasks weigh, and Level what they should weigh. Both are 0 unless the
	// weights of tasks differ.
	Weight int64 `json:"weight,omitempty"`
	Level  int64 `json:"level,omitempty"`
	// OutOfBand is since when each term has left its weight out of its band; zero if the last did not.
	OutOfBand time.Time `json:"out_of_band,omitzero"`
}

// WorkerDetail is the answer to GET api/v1/worker?name=…
type WorkerDetail struct {
	Header
	Worker
	// Pauses are what the leader leaves alone on this worker because it failed, at most a
	// hundred. PausesTotal counts all.
	Pauses      []Pause `json:"pauses"`
	PausesTotal int     `json:"pauses_total"`
	// Running is a part of its tasks; TasksPage has the totals.
	Running   []TaskState `json:"running"`
	TasksPage Page        `json:"tasks_page"`
	// Load is its number of tasks over the terms.
	Load []LoadPoint `json:"load"`
	// Events are the last changes of its condition, the newest first. EventsTotal counts all.
	Events      []TermEvent `json:"events"`
	EventsTotal int         `json:"events_total"`
	// Changes are the last ones that concern it, the newest first. ChangesTotal counts all,
	// each repetition too.
	Changes      []RepeatedChange `json:"changes"`
	ChangesTotal int              `json:"changes_total"`
}

// TermEvent is a change of a worker's condition, with the term that found it and its start.
type TermEvent struct {
	Term  orchestrator.Term `json:"term"`
	Start time.Time         `json:"start"`
	WorkerEvent
}

// TaskState is a task on a worker.
type TaskState struct {
	Name
	// State is what the worker says of it, if the dashboard can ask, such as running or backoff.
	// Err is the error of the last run, and Attempts counts the runs that failed in a row. Since is
	// when it entered the state, and Failing when the first of them failed; zero: not known.
	State    string    `json:"state,omitempty"`
	Err      string    `json:"err,omitempty"`
	Attempts int       `json:"attempts,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	// Stays is why its instance on this worker waits, such as that no other worker can take it.
	Stays   orchestrator.Reason `json:"stays,omitempty"`
	Failing time.Time           `json:"failing,omitzero"`
}

// InstanceState is what a worker says of an instance of a task.
type InstanceState struct {
	Worker Name      `json:"worker"`
	State  TaskState `json:"state"`
}

// Tasks is the answer to GET api/v1/tasks.
type Tasks struct {
	Header
	Page
	Tasks []Task `json:"tasks"`
}

// Task is a task, as the term left it.
type Task struct {
	Name
	// Instances is how many are wanted; 0 if the task is not expected.
	Instances int `json:"instances"`
	// Requires, MaxPerZone and Weight are as in orchestrator.Task.
	Requires   []string `json:"requires,omitempty"`
	MaxPerZone int      `json:"max_per_zone,omitempty"`
	Weight     int64    `json:"weight,omitempty"`
	// Workers run it or may run it; at most eight. WorkersTotal counts all.
	Workers      []Name `json:"workers"`
	WorkersTotal int    `json:"workers_total"`
	// Missing counts the instances that neither run nor are held. Waiting says why, and why
	// others wait; it has at most eight entries, and WaitingTotal counts all.
	Missing      int       `json:"missing,omitempty"`
	Waiting      []Waiting `json:"waiting,omitempty"`
	WaitingTotal int       `json:"waiting_total,omitempty"`
}

// TaskDetail is the answer to GET api/v1/task?name=…
type TaskDetail struct {
	Header
	Task
	// Reasons says of each worker why it has the task or not, those that have it first.
	// It is a part; ReasonsPage has the totals.
	Reasons     []WorkerReason `json:"reasons"`
	ReasonsPage Page           `json:"reasons_page"`
	// States is what the workers say of its instances, at most eight of them, if the dashboard can
	// ask.
	States []InstanceState `json:"states,omitempty"`
	// Changes are the last ones of the task, the newest first. ChangesTotal counts all, each
	// repetition too.
	Changes      []RepeatedChange `json:"changes"`
	ChangesTotal int              `json:"changes_total"`
	// Holds is why the task would not move for an even spread, at most eight reasons.
	Holds []orchestrator.Hold `json:"holds,omitempty"`
	// LongestGap is the longest time for which a move left an instance stopped, of the
	// changes that the history has.
	LongestGap time.Duration `json:"longest_gap_ns,omitempty"`
}

// Terms is the answer to GET api/v1/terms, the newest first.
type Terms struct {
	Header
	Page
	Terms []TermRow `json:"terms"`
}

// TermRow is a term of the history. Quiet counts the terms without changes that followed it
// and that the history has dropped. Holds is why moves for an even spread waited, at most eight
// reasons; old terms have none.
type TermRow struct {
	Stats orchestrator.TermStats `json:"stats"`
	Quiet int                    `json:"quiet,omitempty"`
	Holds []orchestrator.Hold    `json:"holds,omitempty"`
}

// TermDetail is the answer to GET api/v1/term?number=…
type TermDetail struct {
	Header
	TermRow
	// Cause is what made the spread uneven, if the term made moves for an even spread and the history has it.
	Cause *history.Cause `json:"cause,omitempty"`
	// Changes, Waiting and Events are a part of those of the term. The totals count all.
	Waiting      []Waiting     `json:"waiting"`
	WaitingTotal int           `json:"waiting_total"`
	Changes      []Change      `json:"changes"`
	ChangesTotal int           `json:"changes_total"`
	Events       []WorkerEvent `json:"events"`
	EventsTotal  int           `json:"events_total"`
}

// Changes is the answer to GET api/v1/changes, the newest first.
type Changes struct {
	Header
	Page
	Changes []RepeatedChange `json:"changes"`
}

// WhatIf is the answer to GET api/v1/what-if: what the next term would do if workers drained,
// were lost, fell silent or joined.
type WhatIf struct {
	Header
	// Verdict is one sentence.
	Verdict string `json:"verdict"`
	// Plan is the plan without what exceeds the bounds: the workers that change most and
	// the first changes. The totals count all of them.
	Plan         Plan `json:"plan"`
	WorkersTotal int  `json:"workers_total"`
	ChangesTotal int  `json:"changes_total"`
	WaitingTotal int  `json:"waiting_total"`
	PausedTotal  int  `json:"paused_total"`
}

// Settings is the answer to GET api/v1/settings.
type Settings struct {
	Header
	Config orchestrator.Config `json:"config"`
	// Go and Module are the versions of Go and of this module in the leader's program.
	Go     string `json:"go"`
	Module string `json:"module"`
	// Writable reports whether the caller may drain workers.
	Writable bool `json:"writable"`
	// Limit is the most rows of an answer.
	Limit int `json:"limit"`
	// HistoryTerms and HistoryChanges count what the history has, and HistorySince is the
	// start of its first term.
	HistoryTerms   int       `json:"history_terms"`
	HistoryChanges int       `json:"history_changes"`
	HistorySince   time.Time `json:"history_since,omitzero"`
}

// Drain is the answer to POST and DELETE api/v1/drain?worker=…
type Drain struct {
	Worker   Name `json:"worker"`
	Draining bool `json:"draining"`
}

// TextHeader is the header of an answer to a request that accepts the media type text/plain, as the
// command orchctl does. Its value is a Text as JSON.
const TextHeader = "Orchestrator-Answer"

// Text is what programs need to know of an answer that is text for people. Rows counts the rows of a
// list. Texts have no stable form, and are for the command of the same version.
type Text struct {
	Header
	Page
	Rows          int `json:"rows,omitempty"`
	ProblemsTotal int `json:"problems_total,omitempty"`
}

// The types of errors that clients may want to distinguish. Others have the type about:blank.
const (
	// TypeUnknownName has status 404: no worker or task has the name. A path that the
	// dashboard does not have is another error with this status.
	TypeUnknownName = "urn:orchestrator:unknown-name"
	// TypeNotLeading and TypeNoTerm have status 503: this process does not lead, or has not
	// ended a term yet.
	TypeNotLeading = "urn:orchestrator:not-leading"
	TypeNoTerm     = "urn:orchestrator:no-term"
)

// Error is the answer if a request fails, as RFC 9457 defines it.
type Error struct {
	Type   string `json:"type"` // about:blank, or one of those above
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Leader is the address of the process that leads, if this one does not and it is known.
	Leader string `json:"leader,omitempty"`
}

// Error returns the detail, or the title without one.
func (e *Error) Error() string {
	if e.Detail != "" {
		return e.Detail
	}
	return e.Title
}
