package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
	"github.com/dgryski/go-jump"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The sticky balancers of two Kafka clients, called as their clients call them. A
// task is a partition of a topic. A worker is a member of a group that subscribes to
// every topic.

// manyTopics is the number of topics in the variants with more than one.
const manyTopics = 100

// The variants of franz-go in which only planning is timed.
const (
	franzGoOne  = "franz-go, one topic"
	franzGoMany = "franz-go, 100 topics"
)

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

// byWorker turns the owner of each task into the tasks of each worker.
func byWorker(owners []int32, workers int) [][]int32 {
	placed := make([][]int32, workers)
	for t, w := range owners {
		placed[w] = append(placed[w], int32(t))
	}
	return placed
}

// scramble is the finalizer of SplitMix64, a hash of a number.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
