package main

// method is the part of the report that says how to read it. It takes the
// numbers of rounds of plans, of planners where fleets are big, and of terms; and
// the size at which sarama takes part.
const method = `
## How it is measured

- **In turn.** All that is compared takes its turn, round after round, and each round begins with another, so that
  whatever else the machine does meets everyone. A garbage collection comes before each turn. A first round, in which
  everyone comes by their memory, does not count. Times are medians; a ratio is the median of what it was in each round
  that both took part in, so it is not quite the quotient of two times.
- **Warm, apart from others.** This library and its floor have races of their own, with nobody else in them, and each part
  runs once untimed right before it is timed: the caches hold what it touches, and its memory is there. Otherwise the
  floor pays for what came before it, and a ratio to it flatters. So it is for plans and the scan (%d rounds), the hard
  cases, the growth, where both sizes take turns, and whole terms; a term in which something happens comes right behind
  an untimed steady one.
- **Beside other planners** is another race, in the same run: %d rounds at 1M instances, and as many as above where
  fleets are smaller. This library plans once untimed here too before it is timed. The others do not: they have no
  memory to reuse. What it is without is the row *its first plan*.
- **Inputs** are in each planner's own form before the clock starts; only planning is timed. Every plan is then
  worked out and checked: each task on exactly as many different workers as are wanted, and loads that
  differ by one at most where that is promised. A plan that fails ends the run.
- **The integer scan** passes once over the tasks of every worker and marks, in one 64-bit word for each task, the last
  worker and the number of copies. It is that of the fleet before the event, measured beside each event. Which
  worker runs which task is random, as is the order in which it lists them.
- **The comparison** passes over all names on one core; a term uses both.
- **The fan-out** is 128 goroutines that make the calls between them: a context with a deadline, and its cancellation. A
  term has one deadline for all its List calls, so that this part of the floor is more than it has to do.
- **Whole terms** are measured in %d rounds.
- **This library** plans over and over with one planner, as the orchestrator does; *its first plan* is that of a new
  planner, which has to come by its memory. Reasons and the lower bound are part of every plan.
- **franz-go**: ` + "`kgo.StickyBalancer`" + ` (eager), called as its client does: MemberBalancer prepares, BalanceOrError plans.
  It has no memory to reuse. It decodes what members own while it plans; *encoded* also counts the members' encoding
  (JoinGroupMetadata) and the leader's parsing (MemberBalancer). A task is a partition of one topic, or of one of 100
  that everyone subscribes to. It gives the partitions to single members, so it takes part for one instance.
- **sarama**: NewBalanceStrategySticky, one topic, at %s only, in three rounds, and one for all on one:
  it takes minutes at the next size.
- **Jump hash** knows no loads and remembers nothing: it is uneven. Workers leave at the end of the row, since it
  knows no other way. To hash names into its keys is not counted.
`
