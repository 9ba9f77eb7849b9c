package simulator

// Instants: everyone acts at nanoseconds of his own, so that no two things ever
// happen at the same time, and a run does not depend on who of two comes first.

import (
	"context"
	"time"
)

// period is how many nanoseconds apart the instants of one actor are. All
// timeouts are multiples of it, and it is far below the ten-thousandth of a
// timeout by which a call's context ends before the term gives up on it.
const period = 1 << 13

// lane is whose instants: those nanoseconds that leave it as the remainder.
type lane int

// The lanes. There are at most maxWorkers names of workers; leaders share lanes
// only with those long gone.
const (
	maxWorkers = 64
	leaderLoop = 32

	worldLane lane = 0
	loopLanes lane = 1                                         // a leader between its terms
	stopLanes      = loopLanes + leaderLoop                    // a worker whose task takes its time
	nearLanes      = stopLanes + maxWorkers                    // answers reach a leader
	farLanes       = nearLanes + leaderLoop*maxWorkers         // calls reach a worker
	_         lane = period - farLanes - leaderLoop*maxWorkers // there is room
)

func loopLane(leader int) lane { return loopLanes + lane(leader%leaderLoop) }

func stopLane(worker int) lane { return stopLanes + lane(worker) }

func nearLane(leader, worker int) lane {
	return nearLanes + lane(leader%leaderLoop*maxWorkers+worker)
}

func farLane(leader, worker int) lane {
	return farLanes + lane(leader%leaderLoop*maxWorkers+worker)
}

// after returns how long it is from now to the first instant of the lane that
// comes d later, or after that.
func (l lane) after(d time.Duration) time.Duration {
	at := time.Now().Add(d).UnixNano()
	return d + time.Duration((int64(l)-at%period+period)%period)
}

// await waits for the lane's next instant.
func (l lane) await() {
	if d := l.after(0); d > 0 {
		<-time.After(d)
	}
}

// awaitOr does the same, and returns early where ctx ends.
func (l lane) awaitOr(ctx context.Context) error {
	d := l.after(0)
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// whole returns d as a multiple of the period.
func whole(d time.Duration) time.Duration { return d / period * period }
