package netfault

import (
	"sync"
	"time"
)

type setting struct {
	cut   bool
	half  bool
	over  bool
	delay time.Duration
	rate  int // bytes a second; 0: unlimited
}

type valve struct {
	mu      sync.Mutex
	setting setting
	changed chan struct{} // closed and replaced at each change
}

func newValve(s setting) *valve { return &valve{setting: s, changed: make(chan struct{})} }

func (v *valve) now() (setting, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.setting, v.changed
}

func (v *valve) set(change func(*setting)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	over := v.setting.over
	change(&v.setting)
	v.setting.over = v.setting.over || over // a broken connection stays broken
	close(v.changed)
	v.changed = make(chan struct{})
}

// wait returns true when data read at that time may be written, and false if the
// direction is closed.
func (v *valve) wait(read time.Time) bool {
	for {
		s, changed := v.now()
		switch {
		case s.over, s.half:
			return false
		case s.cut:
			<-changed
			continue
		}
		left := s.delay - time.Since(read)
		if left <= 0 {
			return true
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
			timer.Stop()
		}
	}
}

// pace waits for the time that so many bytes, sent from began on, take at the current
// rate. It returns when the last byte is due, which is when the next may be sent. A
// wait that ends late, as on a busy machine, does not lower the rate.
func (v *valve) pace(bytes int, began time.Time) (due time.Time) {
	for {
		s, changed := v.now()
		if s.over || s.half || s.rate <= 0 {
			return began
		}
		due = began.Add(time.Duration(bytes) * time.Second / time.Duration(s.rate))
		left := time.Until(due)
		if left <= 0 {
			return due
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
			timer.Stop()
		}
	}
}

// valves are the two directions of a connection.
type valves struct{ up, down *valve }

func newValves() valves { return valves{newValve(setting{}), newValve(setting{})} }

func (v *valves) clone() valves {
	up, _ := v.up.now()
	down, _ := v.down.now()
	return valves{newValve(up), newValve(down)}
}

func (v *valves) set(d Direction, change func(*setting)) {
	if d&Up != 0 {
		v.up.set(change)
	}
	if d&Down != 0 {
		v.down.set(change)
	}
}
