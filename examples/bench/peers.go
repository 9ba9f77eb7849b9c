//go:build peers

package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
	"github.com/dgryski/go-jump"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/f8949c05/orchestrator/rebalance"
)

// peers returns the planners of others.
func peers(cfg config) []planner {
	return []planner{
		franzGo(franzGoOne, 1, false),
		franzGo(franzGoMany, manyTopics, false),
		franzGo("franz-go, 100 topics, encoded", manyTopics, true),
		jumpHash(),
		saramaSticky(func(s size, e event) int {
			switch {
			case s != cfg.sarama:
				return 0
			case e.name == allOnOne.name: // takes half a minute
				return 1
			}
			return 3
		}),
	}
}

// The sticky balancers of two Kafka clients, called as their clients call them. A
// task is a partition of a topic. A worker is a member of a group that subscribes to
// every topic.

// manyTopics is the number of topics in the variants with more than one.
const manyTopics = 100

// layout maps tasks to partitions of topics.
type layout struct {
	topics []string
	each   int32 // partitions of a topic
}

func newLayout(tasks, topics int) (layout, error) {
	if tasks%topics != 0 {
		return layout{}, fmt.Errorf("%d tasks are not evenly spread over %d topics", tasks, topics)
	}
	l := layout{make([]string, topics), int32(tasks / topics)}
	for i := range l.topics {
		l.topics[i] = fmt.Sprintf("topic-%03d", i)
	}
	return l, nil
}

// owned returns tasks as sorted partitions by topic, as clients pass them.
func (l layout) owned(tasks []int32) map[string][]int32 {
	tasks = slices.Sorted(slices.Values(tasks))
	byTopic := make(map[string][]int32)
	for _, t := range tasks {
		topic := l.topics[t/l.each]
		byTopic[topic] = append(byTopic[topic], t%l.each)
	}
	return byTopic
}

// tasks is the inverse: it returns the tasks of each member in a plan.
func (l layout) tasks(plan map[string]map[string][]int32, members []string) ([][]int32, error) {
	numbers := make(map[string]int32, len(l.topics))
	for i, topic := range l.topics {
		numbers[topic] = int32(i)
	}
	placed := make([][]int32, len(members))
	for i, member := range members {
		for topic, partitions := range plan[member] {
			n, ok := numbers[topic]
			if !ok {
				return nil, fmt.Errorf("no topic is called %q", topic)
			}
			for _, p := range partitions {
				placed[i] = append(placed[i], n*l.each+p)
			}
		}
	}
	return placed, nil
}

// memberNames returns n names in order.
func memberNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("member-%06d", i)
	}
	return names
}

const generation = 1

// franzGo is the eager sticky balancer of franz-go. If codec is true, the time
// includes the encoding of each member's partitions and the leader's parsing.
func franzGo(name string, topics int, codec bool) planner {
	prepare := func(now fleet, _ int) (attempt, error) {
		l, err := newLayout(len(now.want), topics)
		if err != nil {
			return attempt{}, err
		}
		names := memberNames(now.workers())
		owned := make([]map[string][]int32, len(names))
		members := make([]kmsg.JoinGroupResponseMember, len(names))
		partitions := make(map[string]int32, topics)
		for _, topic := range l.topics {
			partitions[topic] = l.each
		}
		balancer := kgo.StickyBalancer()
		encode := func() {
			for i := range members {
				members[i].ProtocolMetadata = balancer.JoinGroupMetadata(l.topics, owned[i], generation)
			}
		}
		for i, held := range now.held {
			members[i].MemberID = names[i]
			owned[i] = l.owned(held)
		}
		encode()
		group, _, err := balancer.MemberBalancer(members)
		if err != nil {
			return attempt{}, err
		}
		var plan *kgo.BalancePlan
		return attempt{
			found: now,
			plan: func() (err error) {
				if codec {
					encode()
					if group, _, err = balancer.MemberBalancer(members); err != nil {
						return err
					}
				}
				plan, err = balanced(group, partitions)
				return err
			},
			placed: func() ([][]int32, error) { return l.tasks(plan.AsMemberIDMap(), names) },
		}, nil
	}
	return planner{name: name, even: true, takes: always, prepare: prepare}
}

// balanced computes a plan as the client does.
func balanced(group kgo.GroupMemberBalancer, partitions map[string]int32) (*kgo.BalancePlan, error) {
	fallible, ok := group.(kgo.GroupMemberBalancerOrError)
	if !ok {
		return nil, errors.New("the balancer is not one that returns errors")
	}
	into, err := fallible.BalanceOrError(partitions)
	if err != nil {
		return nil, err
	}
	plan, ok := into.(*kgo.BalancePlan)
	if !ok {
		return nil, fmt.Errorf("the plan is a %T", into)
	}
	return plan, nil
}

// saramaSticky is the eager sticky strategy of sarama, for the sizes that it can
// handle.
func saramaSticky(takes func(size, event) int) planner {
	prepare := func(now fleet, _ int) (attempt, error) {
		l, err := newLayout(len(now.want), 1)
		if err != nil {
			return attempt{}, err
		}
		strategy := sarama.NewBalanceStrategySticky()
		names := memberNames(now.workers())
		members := make(map[string]sarama.ConsumerGroupMemberMetadata, len(names))
		for i, held := range now.held {
			meta := sarama.ConsumerGroupMemberMetadata{Topics: l.topics}
			if len(held) > 0 {
				if meta.UserData, err = strategy.AssignmentData(names[i], l.owned(held), generation); err != nil {
					return attempt{}, err
				}
			}
			members[names[i]] = meta
		}
		partitions := make([]int32, l.each)
		for p := range partitions {
			partitions[p] = int32(p)
		}
		topics := map[string][]int32{l.topics[0]: partitions}
		var plan sarama.BalanceStrategyPlan
		return attempt{
			found: now,
			plan: func() (err error) {
				plan, err = strategy.Plan(members, topics)
				return err
			},
			placed: func() ([][]int32, error) { return l.tasks(plan, names) },
		}, nil
	}
	return planner{name: "sarama sticky", even: true, takes: takes, prepare: prepare}
}

// Jump consistent hash. It has no memory and no balance, and workers join and leave
// only at the end of the list. It is included for its speed.

func jumpHash() planner {
	return planner{
		name: "jump hash",
		takes: func(s size, e event) int {
			// It does not know which worker runs what, so cold and all on one equal
			// steady.
			if e.name == cold.name || e.name == allOnOne.name {
				return 0
			}
			return always(s, e)
		},
		prepare: func(now fleet, before int) (attempt, error) {
			// Its keys are numbers. The time to hash names is not included.
			keys := make([]uint64, len(now.want))
			for t := range keys {
				keys[t] = scramble(uint64(t))
			}
			owners := make([]int32, len(keys))
			assign := func(workers int) {
				for t, key := range keys {
					owners[t] = jump.Hash(key, workers)
				}
			}
			assign(before)
			ran := byWorker(owners, max(before, now.workers()))
			return attempt{
				found:  fleet{now.want, ran[:now.workers()]},
				plan:   func() error { assign(now.workers()); return nil },
				placed: func() ([][]int32, error) { return byWorker(owners, now.workers()), nil },
			}, nil
		},
	}
}

// compareSubscriptions plans the same events with this library and with franz-go. A topic is
// a class. Each begins with its own cold plan.
func compareSubscriptions(cfg config) ([]subscribed, error) {
	const topics = 10
	before := randomKinds(cfg.small, topics)
	l, err := newLayout(len(before.want), topics)
	if err != nil {
		return nil, err
	}
	for t := range before.class { // a task's class is its topic
		before.class[t] = int32(t) / l.each
	}
	if before, err = before.started(); err != nil {
		return nil, err
	}
	var found []subscribed
	for _, e := range []ruledEvent{ruledSteady, ruledLost, ruledJoins, ruledTenth} {
		now := e.to(before)
		planner, pr := new(rebalance.Planner), now.problem()
		var plan rebalance.Plan
		theirs, err := l.subscribedBalancer(now)
		if err != nil {
			return nil, err
		}
		times, err := race(min(cfg.rounds, 5), []entrant{
			{name: us, warm: true, run: func() (err error) { plan, err = planner.Plan(pr); return err }},
			{name: franzGoMany, run: theirs.plan},
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		s := subscribed{event: e.name, bound: plan.LowerBound, took: [2]samples(times)}
		if s.ours, err = judge(now.fleet, now.after(plan).held); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		if s.theirs, err = theirs.judge(false); err != nil {
			return nil, fmt.Errorf("%s: franz-go: %w", e.name, err)
		}
		found = append(found, s)
	}
	return found, nil
}

// subscribedBalancer is franz-go's sticky balancer for members that subscribe to the topics
// of the classes that they may run.
func (l layout) subscribedBalancer(now ruled) (attempt, error) {
	names := memberNames(now.workers())
	members := make([]kmsg.JoinGroupResponseMember, len(names))
	partitions := make(map[string]int32)
	for _, topic := range l.topics {
		partitions[topic] = l.each
	}
	balancer := kgo.StickyBalancer()
	for i, held := range now.held {
		var topics []string
		for c, kinds := range now.may {
			if slices.Contains(kinds, now.kind[i]) {
				topics = append(topics, l.topics[c])
			}
		}
		members[i].MemberID = names[i]
		members[i].ProtocolMetadata = balancer.JoinGroupMetadata(topics, l.owned(held), generation)
	}
	group, _, err := balancer.MemberBalancer(members)
	if err != nil {
		return attempt{}, err
	}
	var plan *kgo.BalancePlan
	return attempt{
		found:  now.fleet,
		plan:   func() (err error) { plan, err = balanced(group, partitions); return err },
		placed: func() ([][]int32, error) { return l.tasks(plan.AsMemberIDMap(), names) },
	}, nil
}
