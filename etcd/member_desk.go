package etcd

// The state of each task of one membership. Events come from the watch, the worker
// and the writer; the seats decide, and the desk carries out.
import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
	"github.com/f8949c05/orchestrator/worker"
)

// desk runs the tasks of one membership. All that it starts ends with ctx.
type desk struct {
	id      identity
	worker  *worker.Worker[string]
	writer  *writer
	reader  reader
	log     *slog.Logger
	ctx     context.Context // the membership's
	running sync.WaitGroup  // goroutines started by the desk

	// mu guards the fields below. It is never held during an external call or a
	// wait.
	mu      sync.Mutex
	jobs    map[string]*job
	claims  int           // tasks that are claimed
	closing error         // why no more tasks are claimed; nil: not closing
	empty   chan struct{} // closed when the desk is closing and has no jobs
}

// reader reads the contents of tasks.
type reader interface {
	// read returns the content of a task, no older than the call. It fails only if
	// ctx ends.
	read(ctx context.Context, task string) (content, error)
	// follow passes every content newer than was to the worker, until ctx ends.
	follow(ctx context.Context, task string, was content)
}

// job is a task of the desk.
type job struct {
	seat
	hurry context.CancelFunc // cancels the call that starts the task
	quit  context.CancelFunc // stops following the task's content
}

// watched applies changes of the member's assignments.
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

// answered applies the result of an entry that the writer has written.
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

// event applies an event to the job of a task, and carries out the actions that
// result.
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

// do carries out the job's next action without waiting. The caller holds mu.
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

// start reads the content of a claimed task and starts the task on the worker.
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
			d.log.Info("task started", "worker", d.id.name, "task", task)
		}
		d.event(task, func(j *job) { j.answered(err) })
	})
}

// stop stops a task on the worker. It returns when the task has stopped, or when the
// membership ends, which stops all tasks too.
func (d *desk) stop(task string) {
	for d.ctx.Err() == nil {
		err := d.worker.Remove(d.ctx, task)
		if err == nil {
			d.log.Info("task stopped", "worker", d.id.name, "task", task)
			d.event(task, func(j *job) { j.ended() })
			return
		}
		d.log.Debug("task has not stopped, retrying", "worker", d.id.name, "task", task, "err", err)
		sleep(d.ctx, 100*time.Millisecond)
	}
}

// load returns the number of claimed tasks.
func (d *desk) load() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.claims
}

// close makes the desk claim no more tasks. The channel that it returns is closed
// when no job is left.
func (d *desk) close(reason error) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closing = reason
	d.settle()
	return d.empty
}

// settle closes empty if the desk is closing and has no jobs. The caller holds mu.
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
