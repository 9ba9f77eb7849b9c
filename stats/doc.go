// Package stats shows Prometheus how an orchestrator is doing, a worker, a manager,
// and a recruiter.
//
//	collector, err := stats.Register(prometheus.DefaultRegisterer)
//	…
//	o, err := orchestrator.New(comm, orchestrator.WithStats(collector.Observe))
//
// # Metrics
//
// No label ever holds the name of a task or a worker, so the number of series
// is small and does not grow with the cluster. Counters and histograms are
// there from the start, at zero; gauges describe the latest term, and are there
// once there was one.
//
//	metric                                       type       says
//	orchestrator_terms_total{result}             counter    terms that ended: ok, failed, cut, deposed
//	orchestrator_term_duration_seconds{phase}    histogram  how long list, plan and write took
//	orchestrator_changes_total{op,reason}        counter    starts, stops and moves planned, and why
//	orchestrator_change_outcomes_total{outcome}  counter    what came of them: done, failed, returned …
//	orchestrator_moves_excess_total              counter    starts planned beyond the fewest possible
//	orchestrator_calls_total{op,result}          counter    calls to workers: list, add, remove, apply
//	orchestrator_call_duration_seconds{op}       histogram  how long they took
//
//	orchestrator_workers{state}                  gauge      answering, silent and lost: all of them
//	orchestrator_draining_workers                gauge      those asked to end empty
//	orchestrator_late_workers                    gauge      those that had not answered when the term went on
//	orchestrator_quarantined_workers             gauge      those that get nothing because they failed
//	orchestrator_stuck_calls                     gauge      calls that outlived their deadline
//	orchestrator_instances{state}                gauge      see below
//	orchestrator_load_spread                     gauge      most tasks on an open worker less fewest
//	orchestrator_deferred_moves                  gauge      moves left to later terms
//	orchestrator_mass_loss                       gauge      1 while most workers are silent
//	orchestrator_last_term_timestamp_seconds     gauge      when the term ended, since the Unix epoch
//	orchestrator_last_term_duration_seconds      gauge      how long the whole of it took
//	orchestrator_term_epoch                      gauge      which leader ran it
//	orchestrator_term_number                     gauge      and which of its terms it was
//
// A term is failed if any call in it failed or any worker was silent: it did all
// that could be done nevertheless, unlike one that was cut. A lost worker counts as
// silent in this: terms fail until it is removed, or answers. The states
// of instances overlap, so they are not to be added up: those wanted are
// running, held by a silent worker, or missing; of the missing, some are
// unplaceable; unexpected ones run though nobody wants them, and duplicate
// counts what a worker listed twice.
//
// # Alerts
//
//	# Something has had no place to run for five minutes.
//	max(orchestrator_instances{state="missing"}) > 0                      for 5m
//	# Nobody leads.
//	time() - max(orchestrator_last_term_timestamp_seconds) > 60 or absent(orchestrator_last_term_timestamp_seconds)
//	# Two lead at once.
//	count(time() - orchestrator_last_term_timestamp_seconds < 60) > 1     for 2m
//	# A worker does not answer, or never returns from a call.
//	max(orchestrator_workers{state=~"silent|lost"}) > 0                   for 5m
//	max(orchestrator_stuck_calls) > 0                                     for 5m
//	# Terms run out of time before they have begun all that they planned.
//	rate(orchestrator_change_outcomes_total{outcome="skipped"}[10m]) > 0  for 30m
//	# Most workers are silent; none is declared lost.
//	max(orchestrator_mass_loss) > 0
//	# Tasks keep moving though nobody joins, leaves or drains.
//	sum(rate(orchestrator_changes_total{op="move",reason="rebalance"}[1h])) > 0.1
//
// # Workers and managers
//
// [RegisterWorker] shows how the lease of a worker is doing, in the worker's process,
// whatever transport keeps it; [RegisterManager] shows what a manager of package
// communicator/grpc counts.
//
//	metric                                             type     says
//	orchestrator_worker_lease_left_seconds             gauge    what is left before it stops its tasks
//	orchestrator_worker_keepalives_sent_total          counter  requests for its lease
//	orchestrator_worker_keepalives_acknowledged_total  counter  those that were acknowledged
//	orchestrator_worker_rejoins_total                  counter  how often it lost its lease and began anew
//	orchestrator_manager_members                       gauge    workers that are members
//	orchestrator_manager_refused_calls_total{cause}    counter  calls of workers refused: NotFound, AlreadyExists …
//
//	# A worker's keepalives are missed.
//	increase(orchestrator_worker_keepalives_sent_total[5m]) - increase(orchestrator_worker_keepalives_acknowledged_total[5m]) > 3
//	# A worker loses its lease again and again.
//	increase(orchestrator_worker_rejoins_total[1h]) > 2
//
// # Several orchestrators, several leaders
//
// Two orchestrators in one process each take a collector of their own, told
// apart by a label: [WithConstLabels]. Prometheus wants the label's name on
// both of them, and the alerts want it in a by clause.
//
// [Register] twice with the same labels gives the same collector twice: a
// process that leads, is deposed, and leads again with a new orchestrator goes
// on counting where it stopped. Gauges would still show what it saw last while
// another process leads; to have none then, take the collector off with the
// registry's Unregister when leadership ends.
//
// # Recruiting
//
// [RegisterRecruiter] shows what the jobs of package recruit come to. Its label
// holds the names that jobs were installed under.
//
//	metric                               type     says
//	recruit_dismissed_total              counter  calls that recruited nobody
//	recruit_job_recruited_total{name}    counter  those that did
//	recruit_job_dismissed_total{name}    counter  those that drew the job when it was not to be had
//	recruit_job_failed_total{name}       counter  recruits that failed, by error or panic
//	recruit_job_panicked_total{name}     counter  those by panic
//	recruit_job_overdue_total{name}      counter  recruits that were left behind
//	recruit_job_seconds_total{name}      counter  how long recruits took
//	recruit_job_rate{name}               gauge    the probability of a recruit
//	recruit_job_running{name}            gauge    recruits under way
//	recruit_job_left_behind{name}        gauge    those left behind that have not returned
//
//	# A job blocks, and is not recruited any more.
//	max by (name) (recruit_job_left_behind) > 0                            for 5m
//	# A job does nothing but fail.
//	rate(recruit_job_failed_total[10m]) >= rate(recruit_job_recruited_total[10m]) > 0
package stats
