package handover

// queue is a first-in first-out list of indices.
type queue struct {
	items []int32
	head  int
}

func (q *queue) push(i int32) {
	// Once the front half is used up, the rest moves there: amortized O(1).
	if q.head > 16 && q.head > len(q.items)/2 {
		q.items = q.items[:copy(q.items, q.items[q.head:])]
		q.head = 0
	}
	q.items = append(q.items, i)
}

func (q *queue) pop() int32 {
	i := q.items[q.head]
	q.head++
	return i
}

func (q *queue) front() int32 { return q.items[q.head] }
func (q *queue) len() int     { return len(q.items) - q.head }
func (q *queue) empty() bool  { return q.head == len(q.items) }
