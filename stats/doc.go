// Package stats exports the metrics of an orchestrator, a worker, a manager, a replica or
// a recruiter to Prometheus.
//
//	collector, err := stats.Register(prometheus.DefaultRegisterer)
//	…
//	o, err := orchestrator.New(comm, orchestrator.WithStats(collector.Observe))
//
// # Metrics
//
// No label of these metrics contains the name of a task or a worker. So the number
// of series is small and does not grow with the cluster. Counters and histograms
// exist from the start, at zero. Gauges describe the latest term. They exist from the
// first term to the end of leadership.
//
//	metric                                       type       meaning
//	orchestrator_terms_total{result}             counter    terms that ended: ok, failed, cut, deposed
//	orchestrator_term_duration_seconds{phase}    histogram  duration of the phases list, plan and write
//	orchestrator_changes_total{op,reason}        counter    planned starts, stops and moves, by reason
//	orchestrator_change_outcomes_total{outcome}  counter    their outcomes: done, failed, returned …
//	orchestrator_moves_excess_total              counter    planned starts beyond the fewest possible
//	orchestrator_worker_state_changes_total{to}  counter    how often workers became silent, lost, or answering again
//	orchestrator_calls_total{op,result}          counter    calls to workers: list, add, remove, apply
//	orchestrator_call_duration_seconds{op}       histogram  duration of these calls
//
//	orchestrator_workers{state}                  gauge      all workers: answering, silent or lost
//	orchestrator_draining_workers                gauge      workers that are draining
//	orchestrator_late_workers                    gauge      workers that had not answered when the listing phase
//	                                                        ended, and are not silent
//	orchestrator_quarantined_workers             gauge      workers that get no tasks because starts failed
//	orchestrator_stuck_calls                     gauge      calls that outlived their deadline
//	orchestrator_instances{state}                gauge      see below
//	orchestrator_load_spread                     gauge      most minus fewest tasks on workers that can get tasks
//	orchestrator_highest_load_ratio              gauge      highest weight of a worker by its level, 0 unless
//	                                                        weights differ
//	orchestrator_out_of_band_workers             gauge      workers whose weight is out of the band around their level
//	orchestrator_deferred_moves                  gauge      moves left to later terms
//	orchestrator_held_moves                      gauge      moves for an even spread that wait: for a silent worker,
//	                                                        a Hold, or weights that are not known yet
//	orchestrator_held_evictions                  gauge      instances that stay where labels forbid it, because
//	                                                        changed labels would evict too many at once
//	orchestrator_mass_loss                       gauge      1 while too many workers are silent to declare one lost
//	orchestrator_last_term_timestamp_seconds     gauge      end of the term, since the Unix epoch
//	orchestrator_last_term_duration_seconds      gauge      duration of the whole term
//	orchestrator_term_epoch                      gauge      epoch of the term, which identifies its leader
//	orchestrator_term_number                     gauge      number of the term within its epoch
//
// A term has failed if any of its calls failed or any worker was silent. A failed
// term has still done all it could, unlike one that was cut. A lost worker counts as
// silent here: terms fail until it is removed or answers.
//
// The states of instances overlap, so do not add them up. The wanted instances are
// running, held by a silent or late worker, or missing. Unplaceable ones are those
// of the wanted for which the term found no worker. Unexpected instances run
// although their task is not expected. Duplicate counts how often a worker listed a
// task again.
//
// Moves have the reasons rebalance, drain, room, and, for evictions by a rule of placement,
// requires, zone and limit.
//
// # Alerts
//
// The repository has alert rules for these metrics in docs/alerts.yml and a Grafana
// dashboard in docs/grafana/orchestrator.json. docs/operating.md says what to do about
// each alert.
//
// # Workers and managers
//
// [RegisterWorker] exports the state of a worker's lease and of its tasks, in the worker's
// process, for any transport. A task is failing if its last three runs or more have failed. [RegisterManager] exports the counts of a manager of package
// communicator/grpc/manager.
//
//	metric                                             type     meaning
//	orchestrator_worker_lease_left_seconds             gauge    time left before the worker stops its tasks
//	orchestrator_worker_keepalives_sent_total          counter  requests for the worker's lease
//	orchestrator_worker_keepalives_acknowledged_total  counter  requests that were acknowledged
//	orchestrator_worker_rejoins_total                  counter  rejoins, such as after a lost lease
//	orchestrator_worker_failed_runs_total              counter  runs of tasks that failed
//	orchestrator_worker_tasks{state}                   gauge    tasks: queued, starting, running, backoff, stopping, completed, failed
//	orchestrator_worker_failing_tasks                  gauge    tasks that crash in a loop
//	orchestrator_worker_failing_seconds                gauge    how long the first of them has
//	orchestrator_manager_members                       gauge    workers that are members
//	orchestrator_manager_refused_calls_total{cause}    counter  refused calls of workers: NotFound, AlreadyExists …
//
// # Replicas
//
// [RegisterReplica] exports the figures of a replica of package replica. The metrics of a
// leader's terms are those above. Package replica/admin serves both.
//
//	metric                                            type     meaning
//	orchestrator_replica_leading                      gauge    1 while the replica leads
//	orchestrator_replica_epoch                        gauge    epoch of the last election
//	orchestrator_replica_members                      gauge    replicas that are alive, as this one sees them
//	orchestrator_replica_tasks{state}                 gauge    its tasks: queued, starting, running, backoff (failed, and tried again), stopping
//	orchestrator_replica_failing_tasks                gauge    its tasks that crash in a loop
//	orchestrator_replica_failing_seconds              gauge    how long the first of them has
//	orchestrator_replica_source_failing_seconds       gauge    how long the Source has not answered, that of the leader included
//	orchestrator_replica_braked_tasks                 gauge    tasks that stay although the Source lacks them; only a leader knows them
//	orchestrator_replica_bad_rows                     gauge    rows of the Source that do not count; only a leader knows them
//	orchestrator_replica_lease_left_seconds           gauge    time left before the replica stops its tasks
//	orchestrator_replica_last_sync_timestamp_seconds  gauge    when the last Sync succeeded
//	orchestrator_replica_syncs_total{result}          counter  Syncs with the table: ok, failed
//	orchestrator_replica_sync_seconds_total           counter  total duration of the Syncs
//	orchestrator_replica_elections_total              counter  elections that the replica has won
//	orchestrator_replica_rejoins_total                counter  rejoins, such as after a lost lease
//	orchestrator_replica_failed_runs_total            counter  runs of tasks that failed
//
// The sum of orchestrator_replica_leading over all replicas should be 1.
//
// # Several orchestrators, several leaders
//
// If one process has two orchestrators, give each its own collector with a label
// that differs: [WithConstLabels]. Prometheus requires that both have the same label
// names. Add the label to a by clause in the alerts.
//
// If [Register] is called twice with the same labels, it returns the same collector.
// So counts continue if a process leads, is deposed, and leads again with a new
// orchestrator. The gauges end with the leadership: when Run has returned, or a term
// ended with ErrDeposed. A program that calls NextTerm calls [Collector.Forget] then.
//
// # Recruiting
//
// [RegisterRecruiter] exports the counts of the jobs of package recruit. The label
// name contains the name under which a job was installed.
//
//	metric                               type     meaning
//	recruit_dismissed_total              counter  calls that ran no job
//	recruit_job_recruited_total{name}    counter  calls that ran the job
//	recruit_job_dismissed_total{name}    counter  calls that drew the job but could not run it
//	recruit_job_failed_total{name}       counter  runs that returned an error or panicked
//	recruit_job_panicked_total{name}     counter  runs that panicked
//	recruit_job_overdue_total{name}      counter  runs that were left behind
//	recruit_job_seconds_total{name}      counter  total duration of the runs that have returned
//	recruit_job_rate{name}               gauge    probability with which a call draws the job
//	recruit_job_running{name}            gauge    runs with a waiting caller
//	recruit_job_left_behind{name}        gauge    runs left behind that have not returned
package stats
