package model

// rule is a rule of the protocol that a configuration can switch off.
type rule uint8

const (
	newestOnly rule = iota
	givenUpReading
	refuseStale
	refusedStays
	reportAccepted
	reportStopping
	resendReport
	ordersCount
	reportsCount
	sentCounts
	appliedCounts
	batchEpoch
	batchServer
	noLaterBatch
	orderEpoch
	exactEpoch
	tableSecond
	compareSwap
	laterEpoch
	claimFirst
	firstBatch
	reconsider
	foundLater
	heartbeatRises
	compareEvicted
	rememberEvicted
	unknownAnew
	epochAbove
	sameBatchAgain
	confirmFirst
	confirmReports
	callNamesServer
	freshID
	leaderStops
	selfFencing
	ruleCount
)

// rules has for each rule the clause, and what the protocol does because of it.
var rules = [ruleCount]struct{ clause, name, text string }{
	newestOnly:      {"O1", "newest order only", "a member starts a task only from an order above its Applied"},
	givenUpReading:  {"O1", "a given-up reading", "a reading of another Server than the newest View's changes nothing"},
	refuseStale:     {"O1", "refuse late orders", "a member refuses an order to run that it does not act on"},
	refusedStays:    {"O1", "refused stays refused", "a member never starts a task from an order that it has refused"},
	reportAccepted:  {"O2", "accepted is reported", "a report has the tasks that a member will start, too"},
	reportStopping:  {"O2", "stopping is reported", "a report has the tasks that still stop"},
	resendReport:    {"O2", "an old report", "a View with another report than the member's own renews no lease"},
	ordersCount:     {"O3", "orders count", "a member may run what its order in the table has"},
	reportsCount:    {"O3", "reports count", "a member may run what its report has"},
	sentCounts:      {"O3", "what was sent counts", "what a leader has sent counts as written"},
	appliedCounts:   {"O3", "Applied is compared", "a member may run a task whose order to stop it has not read"},
	batchEpoch:      {"O4", "epoch of a batch", "a batch takes effect only in the epoch of its writer"},
	batchServer:     {"O4", "Server of a batch", "a batch takes effect only in the Server that it names"},
	noLaterBatch:    {"O4", "no later batch", "a batch takes effect only if no later one was written"},
	orderEpoch:      {"O5", "epoch of an order", "a member starts nothing from an order of another epoch"},
	exactEpoch:      {"O5", "exactly the epoch", "the epoch of an order must be exactly the table's, not a higher one"},
	tableSecond:     {"O5", "table second", "a member reads its order first and the table's record second"},
	compareSwap:     {"O5", "compare and swap", "an order record is written only over the one that was read"},
	laterEpoch:      {"O5", "a later epoch", "a leader does not replace an order of a later epoch"},
	claimFirst:      {"O6", "claim, then read", "a leader claims before it reads"},
	firstBatch:      {"O6", "first batch", "a new leader writes the orders of earlier epochs again"},
	reconsider:      {"O6", "unread orders", "the first batch makes unread orders that O3 forbids orders to stop"},
	foundLater:      {"O6", "found later", "a leader treats an order of an earlier epoch alike when it finds it later"},
	heartbeatRises:  {"B1", "heartbeat rises", "a Sync with an older heartbeat publishes nothing"},
	compareEvicted:  {"B2", "Evict compares", "an eviction fails if the heartbeat has risen"},
	rememberEvicted: {"B2", "removed IDs", "the Sync of a removed ID publishes nothing"},
	unknownAnew:     {"B2", "unknown ID", "the Sync of an unknown ID publishes it anew"},
	epochAbove:      {"B3", "above every record", "a new epoch is above those in all records"},
	sameBatchAgain:  {"B5", "the same batch again", "a batch without an answer is followed by no other one"},
	confirmFirst:    {"B7", "campaigns wait", "no campaign takes effect before Confirm"},
	confirmReports:  {"B7", "Confirm waits", "at Confirm each member that lives has published in this Server"},
	callNamesServer: {"B7", "Sync of another Server", "a Sync that names another Server renews no lease"},
	freshID:         {"A5", "another ID", "a member whose lease was lost rejoins under another ID"},
	leaderStops:     {"A9", "another Server", "a leader stops when a View names another Server"},
	selfFencing:     {"2.3", "self-fencing", "a member stops all tasks before its death can be observed"},
}

func (r rule) String() string { return rules[r].clause + " " + rules[r].name }

// ruleSet is a set of rules.
type ruleSet uint64

func only(list ...rule) ruleSet {
	set := ruleSet(0)
	for _, r := range list {
		set |= 1 << r
	}
	return set
}
