package rebalance

// The planner: the steps of a plan, and their order.

import "slices"

// Planner makes plans. It reuses its memory, so that a call on a problem of the same size
// allocates very little, and nothing if there is nothing to change. The zero value is
// ready to use. It is not safe for concurrent use.
type Planner struct {
	draft draft // shared by all steps

	scan       scan
	demand     demand
	quarantine quarantine
	surplus    surplus
	search     search
	bound      lowerBound
	placement  placement
	transfer   transfer
	repair     repair
	assembly   assembly
	rules      rules
	secondLook secondLook
}

// Plan plans one problem. The plan's slices are valid until the next call. If the problem
// is inconsistent, Plan returns an error that wraps ErrInvalid.
func (p *Planner) Plan(pr *Problem) (Plan, error) {
	if err := pr.check(); err != nil {
		return Plan{}, err
	}
	plan, err := p.planOnce(pr)
	var before []int32 // secondLook plans other loads
	if pr.Still {
		before = slices.Clone(p.rules.loads)
	}
	if err == nil && p.rules.mayImprove(pr) {
		plan, err = p.secondLook.run(p, pr, plan)
	}
	for i := range plan.Changes {
		if c := &plan.Changes[i]; pr.Still && c.Reason == Rebalance {
			if c.Reason = Room; pr.MaxTasks != nil && pr.MaxTasks[c.From] > 0 && before[c.From] > pr.MaxTasks[c.From] {
				c.Reason = EvictLimit
			}
		}
	}
	return plan, err
}

// planOnce plans a problem that is consistent.
func (p *Planner) planOnce(pr *Problem) (Plan, error) {
	p.connect()
	d := &p.draft
	d.start(pr)
	defer d.end()
	d.ruled = p.rules.bind()
	p.scan.meetList = nil
	if d.ruled {
		p.scan.meetList = p.rules.meetList()
	}
	if err := p.scan.run(); err != nil {
		return Plan{}, err
	}
	if p.scan.isComplete() && (!d.ruled && p.scan.isEven() || d.ruled && p.rules.isSteady()) {
		return d.plan, nil
	}
	p.scan.stopUnexpected()
	if d.ruled {
		p.demand.prepare()
		p.rules.run()
		return d.plan, nil
	}
	p.bound.begin()
	p.demand.prepare()
	p.quarantine.decide()
	p.demand.decide()
	p.scan.gaps()
	p.surplus.trim()
	p.search.relieve()
	p.bound.set()
	d.changes = slices.Grow(d.changes, d.plan.LowerBound) // appending alone would copy the slice several times
	d.adds = slices.Grow(d.adds, d.plan.LowerBound)
	p.placement.place()
	p.transfer.handOff()
	p.transfer.exchange()
	p.repair.run()
	p.bound.finish(p.transfer.exchanged)
	p.assembly.leftover()
	p.assembly.pair()
	p.assembly.postpone()
	return d.plan, nil
}

// connect gives each step the draft and the steps that it uses. It runs in every call,
// because the caller may have copied the Planner.
func (p *Planner) connect() {
	d := &p.draft
	p.scan.draft, p.scan.surplus = d, &p.surplus
	p.demand.draft = d
	p.quarantine.draft = d
	p.surplus.draft = d
	p.search.draft, p.search.surplus = d, &p.surplus
	p.bound.draft = d
	p.placement.draft, p.placement.search = d, &p.search
	p.transfer.draft, p.transfer.index = d, &p.search.index
	p.repair.draft, p.repair.search = d, &p.search
	p.assembly.draft = d
	p.rules.draft, p.rules.assembly = d, &p.assembly
}
