// Package scenario plays transcripts: text files that show what leaders do in a
// situation, as a user sees it. Tests compare the output with the file. It is for
// tests only.
//
// # How to read a transcript
//
// A line that starts in the first column is a command. The indented lines below it
// are its output. Lines that start with # are comments.
//
//	leader
//	join a b
//	tasks t1..t4
//	term
//	  term 1, 2ms
//	  start  t1 t4 on a (missing)
//	  start  t2 t3 on b (missing)
//	  a: t1 t4
//	  b: t2 t3
//
// A name such as t1..t4 stands for t1 t2 t3 t4. Time is that of a testing/synctest
// bubble. List takes 1 ms at the first worker, 2 ms at the second, and so on.
// Everything else takes no time unless a command says so.
//
// # The commands
//
// Leaders:
//
//	leader [NAME] [SETTING=VALUE ...]  add a leader, with the expectations of the others
//	lead NAME                          later commands are for this leader
//	term                               run a term
//	terms N [DURATION]                 run N terms, DURATION apart; rows only after changes
//	begin, finish                      begin a term; wait for its end
//	plan [WHAT=NAMES ...]              print the plan under a hypothesis; WHAT is drain,
//	                                   undrain, silence, lose, workers, tasks or remove
//	run EVERY FOR                      call Run for the time FOR
//	later DURATION COMMAND             execute COMMAND so long after the next run begins
//
// Expectations, for all leaders:
//
//	join WORKER ...                    add workers; start those that do not run
//	leave, drain, undrain WORKER ...
//	tasks TASK[=INSTANCES] ... [handoff=ORDER]
//	drop TASK ...                      remove tasks
//
// Workers and their calls; OP is list, add or remove, and * means any:
//
//	start, kill WORKER ...             start or end processes
//	runs WORKER TASK ...               start tasks without a leader
//	repeat WORKER TASK ...             List returns these names once more
//	refuse OP WORKER TASK              calls return ErrRejected and do nothing
//	fail OP WORKER TASK                calls return another error and do nothing
//	garble OP WORKER TASK              calls succeed and return an error
//	delay DURATION OP WORKER TASK      calls take longer
//	allow                              end the last five
//
// The network, as described in package communicator/memory:
//
//	cut, hang, stick WORKER ...
//	slow, late DURATION WORKER ...
//	mute WORKER ...                    lose answers
//	hold, free WORKER                  hold and release writes
//	heal [WORKER ...]
//
// Others:
//
//	wait DURATION
//	show                               print the rows
//
// # The output
//
//	term 3, 10s; 2 moves left for later
//	start  t1 t4 on a (missing)
//	move   t3 from b to d (rebalance): returned, rejected by the worker
//	stop   t9 on b (unexpected)
//	waits  t5 (held, c)
//	pauses start t7 on a until term 6, after 1 failure: rejected by the worker
//	error  list worker c: the worker is cut off: c
//	a: t1 t2 t4
//	b: t3, draining
//	c: t5, silent
//	t3 t4 ran nowhere for 2s
//
// A row gives the tasks that run on a worker, whatever the leader believes. After
// them it gives the worker's state, and the leader's view if that differs. The last
// lines give the time for which a task ran on too many workers or, after it had run,
// on none.
package scenario
