package etcd

import (
	"encoding/json"
	"fmt"

	"github.com/f8949c05/orchestrator"
)

// settingsJSON is the JSON form of Settings, without the default values.
type settingsJSON struct {
	Instances int    `json:"instances,omitempty"`
	Handoff   string `json:"handoff,omitempty"`
}

// MarshalJSON returns an object with the settings that differ from the default, such
// as {"instances":2,"handoff":"start then stop"}.
func (s Settings) MarshalJSON() ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	j := settingsJSON{Instances: s.Instances}
	if s.Handoff != orchestrator.HandoffDefault {
		j.Handoff = s.Handoff.String()
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads such an object. It ignores unknown fields and sets Instances
// to at least 1. If it fails, s is unchanged.
func (s *Settings) UnmarshalJSON(data []byte) error {
	var j settingsJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	read := Settings{Instances: j.Instances}
	switch j.Handoff {
	case "", orchestrator.HandoffDefault.String():
	case orchestrator.StopThenStart.String():
		read.Handoff = orchestrator.StopThenStart
	case orchestrator.StartThenStop.String():
		read.Handoff = orchestrator.StartThenStop
	default:
		return fmt.Errorf("handoff %q: %w", j.Handoff, orchestrator.ErrInvalid)
	}
	if err := read.check(); err != nil {
		return err
	}
	*s = read.whole()
	return nil
}
