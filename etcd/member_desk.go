package etcd

// The desk of a member: what is going on for each task of one membership. It
// takes events in, from the watch, the worker and the writer, and carries out
// what the seats ask for.

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
	"github.com/f8949c05/orchestrator/worker"
)

// desk runs the tasks of one membership. Everything it starts ends with ctx.
type desk struct {
	id      identity
	worker  *worker.Worker[string]
	writer  *writer
	reader  reader
	log     *slog.Logger
	ctx     context.Context // the membership's: a desk lives for one
	running sync.WaitGroup  // the goroutines begun here

	// mu guards what follows. It is never held over a call to the outside, nor
	// over a wait.
	mu      sync.Mutex
	jobs    map[string]*job
	claims  int
	closing error         // why nothing more is claimed; nil: the member is open
	empty   chan struct{} // closed when it closes and nothing is left
}

// reader reads the contents of tasks.
type reader interface {
	// read returns the content of a task, no older than the call. It fails only
	// where ctx ends.
	read(ctx context.Context, task string) (content, error)
	// follow hands the worker every content that is newer than what was read,
	// until ctx ends.
	follow(ctx context.Context, task string, was content)
}

// job is a task at the desk.
type job struct {
	seat
	hurry context.CancelFunc // ends the call that starts it
	quit  context.CancelFunc // ends what follows its content
}

// watched takes in what the watch of the member's assignments delivers.
func (d *desk) watched(_ mirror.At, changes []mirror.Change) {
	for _, c := range changes {
		kind, _, task, _ := d.id.layout.Parse(c.Key)
		if kind != keys.Assigned {
			continue
		}
		d.event(task, func(j *job) {
			if c.New == nil {
				j.assign(0, false)
			} else {
				j.assign(c.New.Mod, decode[assignment](c.New.Value).Member != d.id.member)
			}
		})
	}
}

// answered takes in that the writer has made an entry.
func (d *desk) answered(e entry, g gain) {
	if e.reason != nil {
		d.log.Info("task refused", "worker", d.id.name, "task", e.task, "reason", e.reason)
	}
	d.event(e.task, func(j *job) {
		switch {
		case e.kind == doClaim && g.claim != 0:
			j.made(g.claim)
			d.claims++
		case e.kind == doClaim && g.blocked != nil:
			j.refused(g.blocked)
		case e.kind == doClaim, e.kind == doRefuse:
			j.missed()
		case e.kind == doLeave:
			j.left()
			d.claims--
		}
	})
}

// event puts something into a task's seat, and does what follows.
func (d *desk) event(task string, happened func(*job)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	j := d.jobs[task]
	if j == nil {
		j = &job{}
		d.jobs[task] = j
	}
	happened(j)
	d.do(task, j)
	if j.forgotten() {
		delete(d.jobs, task)
	}
	d.settle()
}

// do carries out what a seat asks for. The lock is held, nothing waits.
func (d *desk) do(task string, j *job) {
	switch a := j.next(d.closing); a {
	case nothing:
	case doHurry:
		j.hurry()
	case doStart:
		d.start(task, j)
	case doStop:
		j.quit()
		d.running.Go(func() { d.stop(task) })
	default:
		if a == doLeave && j.quit != nil {
			j.quit()
		}
		d.writer.add(entry{kind: a, task: task, basis: j.basis, claim: j.claim, reason: j.failure})
	}
}

// start has the worker start a task that was claimed, once its content is here.
func (d *desk) start(task string, j *job) {
	ctx, hurry := context.WithCancel(d.ctx)
	follow, quit := context.WithCancel(d.ctx)
	j.hurry, j.quit = hurry, quit
	token := uint64(j.claim)
	d.running.Go(func() {
		defer hurry()
		c, err := d.reader.read(ctx, task)
		if err == nil {
			d.running.Go(func() { d.reader.follow(follow, task, c) })
			err = d.worker.AddWith(ctx, task, worker.Grant{
				Content: c.value, Version: c.version, Token: token, Scope: d.id.cluster,
			})
		}
		if err == nil {
			d.log.Info("task taken", "worker", d.id.name, "task", task)
		}
		d.event(task, func(j *job) { j.answered(err) })
	})
}

// stop has the worker stop a task, and comes back when it has: or when the
// membership ends, which stops everything too.
func (d *desk) stop(task string) {
	for d.ctx.Err() == nil {
		err := d.worker.Remove(d.ctx, task)
		if err == nil {
			d.log.Info("task given up", "worker", d.id.name, "task", task)
			d.event(task, func(j *job) { j.ended() })
			return
		}
		d.log.Debug("task does not stop", "worker", d.id.name, "task", task, "err", err)
		sleep(d.ctx, 100*time.Millisecond)
	}
}

// load returns how many tasks are claimed.
func (d *desk) load() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.claims
}

// close has the desk claim nothing more. The channel is closed when nothing is
// left.
func (d *desk) close(reason error) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closing = reason
	d.settle()
	return d.empty
}

// settle notes when a desk that closes has nothing left.
func (d *desk) settle() {
	if d.closing == nil || len(d.jobs) > 0 {
		return
	}
	select {
	case <-d.empty:
	default:
		close(d.empty)
	}
}
