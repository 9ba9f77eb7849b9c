package model

// rule is a rule of the protocol that a configuration can switch off.
type rule uint8

// rules has for each rule the clause, a name, and what the protocol does because of it.
var rules []struct{ clause, name, text string }

var (
	newestOnly      = newRule("O1", "newest order only", "a member starts a task only from an order above its Applied")
	givenUpReading  = newRule("O1", "a given-up reading", "a reading of another Server than the newest View's changes nothing")
	refuseStale     = newRule("O1", "refuse late orders", "a member refuses an order to run that it does not act on")
	refusedStays    = newRule("O1", "refused stays refused", "a member never starts a task from an order that it has refused")
	reportAccepted  = newRule("O2", "accepted is reported", "a report has the tasks that a member will start, too")
	reportStopping  = newRule("O2", "stopping is reported", "a report has the tasks that still stop")
	resendReport    = newRule("O2", "an old report", "a View with another report than the member's own renews no lease")
	ordersCount     = newRule("O3", "orders count", "a member may run what its order in the table has")
	reportsCount    = newRule("O3", "reports count", "a member may run what its report has")
	sentCounts      = newRule("O3", "what was sent counts", "what a leader has sent counts as written")
	appliedCounts   = newRule("O3", "Applied is compared", "a member may run a task whose order to stop it has not read")
	exceptReported  = newRule("O3", "reported tasks only", "a task is always permitted where its report has it, but not where only an order has it")
	batchEpoch      = newRule("O4", "epoch of a batch", "a batch takes effect only in the epoch of its writer")
	batchServer     = newRule("O4", "Server of a batch", "a batch takes effect only in the Server that it names")
	noLaterBatch    = newRule("O4", "no later batch", "a batch takes effect only if no later one was written")
	orderEpoch      = newRule("O5", "epoch of an order", "a member starts nothing from an order of another epoch")
	exactEpoch      = newRule("O5", "exactly the epoch", "the epoch of an order must be exactly the table's, not a higher one")
	tableSecond     = newRule("O5", "table second", "a member reads its order first and the table's record second")
	compareSwap     = newRule("O5", "compare and swap", "an order record is written only over the one that was read")
	laterEpoch      = newRule("O5", "a later epoch", "a leader does not replace an order of a later epoch")
	claimFirst      = newRule("O6", "claim, then read", "a leader claims before it reads")
	firstBatch      = newRule("O6", "first batch", "a new leader writes the orders of earlier epochs again")
	reconsider      = newRule("O6", "unread orders", "the first batch makes unread orders that O3 forbids orders to stop")
	foundLater      = newRule("O6", "found later", "a leader treats an order of an earlier epoch alike when it finds it later")
	heartbeatRises  = newRule("B1", "heartbeat rises", "a Sync with an older heartbeat publishes nothing")
	compareEvicted  = newRule("B2", "Evict compares", "an eviction fails if the heartbeat has risen")
	rememberEvicted = newRule("B2", "removed IDs", "the Sync of a removed ID publishes nothing")
	unknownAnew     = newRule("B2", "unknown ID", "the Sync of an unknown ID publishes it anew")
	epochAbove      = newRule("B3", "above every record", "a new epoch is above those in all records")
	sameBatchAgain  = newRule("B5", "the same batch again", "a batch without an answer is followed by no other one")
	confirmFirst    = newRule("B7", "campaigns wait", "no campaign takes effect before Confirm")
	confirmReports  = newRule("B7", "Confirm waits", "at Confirm each member that lives has published in this Server")
	callNamesServer = newRule("B7", "Sync of another Server", "a Sync that names another Server publishes nothing and renews no lease")
	epochEnds       = newRule("B7", "the epoch ends", "with another Server no epoch is in force, so no order is of the table's epoch")
	freshID         = newRule("A5", "another ID", "a member whose lease was lost rejoins under another ID")
	leaderStops     = newRule("A9", "another Server", "a leader stops when a View names another Server")
	selfFencing     = newRule("2.3", "self-fencing", "a member stops all tasks before its death can be observed")
)

func newRule(clause, name, text string) rule {
	rules = append(rules, struct{ clause, name, text string }{clause, name, text})
	return rule(len(rules) - 1)
}

func (r rule) String() string { return rules[r].clause + " " + rules[r].name }

// ruleSet is a set of rules.
type ruleSet uint64
