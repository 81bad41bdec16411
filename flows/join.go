package flows

import (
	"fmt"
	"slices"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/multicast"
)

// groups returns the multicast groups of a flow: each join without an interface is one on every interface of the
// flow.
func groups(from config.From) (all []multicast.Join) {
	for _, j := range from.Join {
		on := from.All()
		if j.Interface != "" {
			on = []string{j.Interface}
		}
		for _, name := range on {
			all = append(all, multicast.Join{Interface: name, Group: j.Group, Source: j.Source})
		}
	}
	return all
}

// setGroups replaces the multicast groups of a running flow, with f.starting held. Groups that stay are not
// interrupted. After an error the old groups stay.
func (f *Flow) setGroups(from config.From) error {
	next := groups(from)
	if slices.Equal(next, groups(f.config.From)) {
		return nil
	}
	if err := f.joined.Update(next); err != nil {
		return fmt.Errorf("change the multicast groups of flow %s: %w", f.config.Name, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log.Info("multicast groups changed", "groups", len(next), "before", len(groups(f.config.From)))
	f.config.From.Join = from.Join
	return nil
}

func joinStatus(s multicast.State) status.Joined {
	j := status.Joined{Group: s.Group.String(), Interface: s.Interface}
	if s.Source.IsValid() {
		j.Source = s.Source.String()
	}
	if s.Err != nil {
		j.Error = s.Err.Error()
	}
	return j
}
