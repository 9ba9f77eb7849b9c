// Package standing remembers which starts failed, and decides who is avoided
// because of it, and until when. It is a pure bookkeeper over integers: it
// knows tasks and workers by number and time by the number of the term.
//
// # The rules
//
// The pair of task and worker of a failed start is avoided, for 1 term after
// the first failure, for 2 after the second in a row, then 4, and so on up to
// 64.
//
// Who is to blame decides whether anything else is avoided too. It is the
// worker, unless the worker runs something and the task has never been seen
// running anywhere, or failed elsewhere too: then the task looks poisonous, and
// only the pair is avoided. A worker to blame that also acknowledged no start in the same term
// is closed: it gets nothing more, for as many terms as a pair would be
// avoided. Then it is on probation: it may be given one task that failed
// nowhere else or has run. If it takes it, it is open again, and what had been
// held against it, task by task, is forgotten.
//
// What could have been tried again for 64 terms is forgotten.
//
// A start that failed but turns out to have happened did not fail: the task is
// in the worker's list.
package standing
