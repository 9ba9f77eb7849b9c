package model

// holding are the configurations without a rule off in which nothing is found.
var holding = []config{
	{name: "A, a loss", options: slowSyncs | lowEpochs, losses: 1, states: 1051305},
	{name: "A, three leaders", options: slowSyncs, leaders: 3, states: 135936},
	{name: "A, a loss, late answers of readings", options: slowReads | lowEpochs, losses: 1, batches: 2, states: 571881},
	{name: "A, death observed, late Syncs", options: heartbeats | slowSyncs | lateSyncs, batches: 2, states: 1158528},
	{name: "A, death observed, a loss", options: heartbeats | lowEpochs, losses: 1, batches: 2, states: 575787},
	{name: "A, bare Syncs, a loss", options: bareSyncs | lowEpochs, losses: 1, batches: 2, states: 112068},
	{name: "A, late orders", options: lateOrders, effort: always, states: 7044},
	{name: "A, refusals", options: refusals | slowSyncs, states: 101394},
	{name: "A, two tasks", tasks: 2, states: 427591},
	{name: "A, two instances", ids: 3, processes: 3, instances: 2, states: 569430},
	{name: "A, StartThenStop", ids: 3, processes: 3, surplus: 1, states: 569430},
	{name: "A, first batches, a loss", options: slowSyncs | lowEpochs | adoption, losses: 1, states: 1297343},
	{name: "A, first batches, comes to run", options: liveness | adoption, batches: 2, states: 10496},
	{name: "B, two tasks", store: piecewise, tasks: 2, batches: 2, states: 652611},
	{name: "B, reports read before orders, a loss", store: piecewise, options: lowEpochs | reportsFirst, losses: 1, batches: 2, effort: large, states: 1038665},
	{name: "A, reports read before orders, a loss", options: slowSyncs | lowEpochs | reportsFirst, losses: 1, effort: large, states: 1892960},
	{name: "A, two tasks, a loss", options: lowEpochs, tasks: 2, losses: 1, batches: 2, effort: large, states: 1880848},
	{name: "B, a loss, slow Syncs", store: piecewise, options: slowSyncs | lowEpochs, losses: 1, batches: 2, effort: large, states: 1062496},
	{name: "A, a loss, comes to run", options: liveness, losses: 1, batches: 2, states: 326139},
	{name: "A, tokens, a loss", options: tokens, losses: 1, states: 986594},
	{name: "A, three IDs, a loss", options: lowEpochs, ids: 3, losses: 1, batches: 2, states: 248515},
	{name: "B, three leaders", store: piecewise, leaders: 3, batches: 2, states: 1995947},
	{name: "B, a loss of any records", store: piecewise, options: lowEpochs | partialLoss, losses: 1, batches: 2, states: 473614},
	{name: "B, falls back to an earlier state", store: piecewise, options: lowEpochs | fallsBack, losses: 1, batches: 2, states: 1334041},
	{name: "B, slow Syncs", store: piecewise, options: slowSyncs, states: 453772},
	{name: "B, orders read before reports", store: piecewise, options: ordersFirst, batches: 2, states: 143120},
	{name: "B, tokens, a loss", store: piecewise, options: tokens, losses: 1, batches: 2, states: 478949},
	{name: "B, StartThenStop", store: piecewise, ids: 3, processes: 3, surplus: 1, batches: 2, states: 283070},
	{name: "B, two instances", store: piecewise, ids: 3, processes: 3, instances: 2, batches: 2, states: 283070},
	{name: "A, comes to run", options: liveness, batches: 2, effort: always, states: 6070},
	{name: "B, comes to run", store: piecewise, options: liveness, batches: 2, states: 440825},
	{name: "B, comes to run after a loss", store: piecewise, options: liveness | plannerOnly, losses: 1, batches: 1, states: 495812},
	{name: "A, comes to run after a loss", options: liveness | plannerOnly, ids: 3, losses: 1, batches: 1, effort: always, states: 13109},
}

// The configurations in which rules are switched off.
var (
	lossA    = config{name: "A, a loss", options: slowSyncs | lowEpochs, losses: 1}
	batchesA = config{name: "A, first batches, a loss", options: slowSyncs | lowEpochs | adoption, losses: 1}
	quickA   = config{name: "A, a loss, Syncs in one step", options: lowEpochs, losses: 1}
	fallsB   = config{name: "B, falls back", store: piecewise, options: lowEpochs | fallsBack, losses: 1, batches: 1}
	lossB    = config{name: "B, a loss", store: piecewise, options: lowEpochs, losses: 1, batches: 2}
	ordersB  = config{name: "B, orders read before reports, a loss", store: piecewise, options: lowEpochs | ordersFirst, losses: 1, batches: 2}
	leadersB = config{name: "B, three leaders", store: piecewise, leaders: 3, batches: 2}
	lateA    = config{name: "A, late orders", options: lateOrders}
	refusesA = config{name: "A, refusals", options: refusals | slowSyncs}
	readsA   = config{name: "A, late answers of readings", options: slowReads | lowEpochs, losses: 1, batches: 2}
	bareA    = config{name: "A, bare Syncs", options: bareSyncs | lowEpochs, losses: 1, batches: 2}
	diesA    = config{name: "A, death observed", options: heartbeats | slowSyncs, batches: 2}
	diesA1   = config{name: "A, death observed, a loss", options: heartbeats | lowEpochs, losses: 1, batches: 2}
	lateDies = config{name: "A, death observed, late Syncs", options: heartbeats | slowSyncs | lateSyncs, batches: 2}
	tokensA  = config{name: "A, tokens, epochs that fall", options: tokens | lowEpochs, losses: 1}
	runsA    = config{name: "A, comes to run", options: liveness, losses: 1, batches: 2}
	runsB    = config{name: "B, comes to run", store: piecewise, options: liveness, batches: 2}
)

// defects has each rule switched off where that is found.
var defects = []config{
	lossA.without(inCI, runsTwice, 20, newestOnly),
	readsA.without(inCI, runsTwice, 18, givenUpReading),
	runsA.without(inCI, neverRuns, 9, refuseStale),
	refusesA.without(always, runsTwice, 16, refusedStays),
	lossA.without(inCI, runsTwice, 20, reportAccepted),
	lossB.without(inCI, runsTwice, 20, reportAccepted),
	lossA.without(inCI, runsTwice, 18, reportStopping),
	lossB.without(inCI, runsTwice, 21, reportStopping),
	bareA.without(inCI, runsTwice, 18, resendReport),
	lossA.without(inCI, runsTwice, 13, ordersCount),
	lossB.without(inCI, runsTwice, 14, ordersCount),
	lossA.without(inCI, runsTwice, 18, reportsCount),
	lossB.without(inCI, runsTwice, 20, reportsCount),
	lossA.without(always, runsTwice, 13, sentCounts),
	lossB.without(inCI, runsTwice, 14, sentCounts),
	lossA.without(inCI, runsTwice, 15, appliedCounts),
	lossB.without(inCI, runsTwice, 19, appliedCounts),
	lossA.without(inCI, runsTwice, 27, exceptReported),
	lossB.without(inCI, runsTwice, 18, exceptReported),
	ordersB.without(large, runsTwice, 24),
	lossA.without(inCI, runsTwice, 14, batchEpoch),
	lossA.without(inCI, runsTwice, 16, batchServer),
	lateA.without(always, runsTwice, 18, noLaterBatch),
	lossB.without(inCI, runsTwice, 15, orderEpoch),
	lossB.without(inCI, runsTwice, 15, exactEpoch),
	lossB.without(inCI, runsTwice, 16, tableSecond),
	leadersB.without(inCI, runsTwice, 22, compareSwap),
	leadersB.without(large, runsTwice, 21, laterEpoch),
	lossA.without(inCI, runsTwice, 15, claimFirst),
	lossB.without(inCI, runsTwice, 16, claimFirst),
	batchesA.without(inCI, runsTwice, 31, reconsider),
	leadersB.without(inCI, runsTwice, 19, reconsider),
	runsB.without(inCI, neverRuns, 5, firstBatch),
	runsB.without(inCI, neverRuns, 7, foundLater),
	lateDies.without(inCI, runsTwice, 20, heartbeatRises),
	diesA.without(inCI, runsTwice, 17, freshID, compareEvicted),
	diesA.without(inCI, runsTwice, 17, freshID, rememberEvicted),
	lossA.without(inCI, runsTwice, 27, epochAbove),
	tokensA.without(inCI, tokenFalls, 16),
	lossA.without(inCI, runsTwice, 16, confirmFirst),
	lossB.without(inCI, runsTwice, 17, confirmFirst),
	lossA.without(inCI, runsTwice, 17, confirmReports),
	lossB.without(inCI, runsTwice, 18, confirmReports),
	lossA.without(inCI, runsTwice, 19, callNamesServer),
	quickA.without(inCI, runsTwice, 16, callNamesServer),
	lossB.without(inCI, runsTwice, 19, callNamesServer),
	lossA.without(inCI, runsTwice, 15, leaderStops),
	fallsB.without(inCI, runsTwice, 18, epochEnds),
	diesA.without(always, runsTwice, 15, selfFencing),
}

// spare has rules without which nothing is found: they are a second line of defence.
var spare = []config{
	lossA.without(large, none, 0, unknownAnew),
	lossB.without(large, none, 0, unknownAnew),
	lossA.without(large, none, 0, sameBatchAgain),
	lossB.without(large, none, 0, sameBatchAgain),
	diesA.without(inCI, none, 0, compareEvicted, rememberEvicted),
	diesA1.without(large, none, 0, freshID),
	batchesA.without(large, none, 0, orderEpoch),
	lossB.without(large, none, 0, newestOnly),
	lossB.without(large, none, 0, leaderStops),
	lossB.without(large, none, 0, epochAbove),
}
