package afxdp

import (
	"fmt"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/xdp"
)

// selection returns the criteria by which a flow's XDP program selects packets of a link type.
func selection(from config.From, of linktype.Type) (s bpf.Selection, err error) {
	switch {
	case from.Object.File != "":
		s.Own, err = bpf.ReadObject(from.Object.File, from.Object.Program)
	case from.Rules != nil:
		s.Rules, err = rules(from.Rules, of)
	default:
		s.Filter, err = config.ParseFilter(from.Filter, of)
	}
	return s, err
}

func rules(list []config.Rule, of linktype.Type) ([]bpf.Rule, error) {
	actions := map[config.Action]bpf.Action{config.ActionTake: bpf.Take, config.ActionLeave: bpf.Leave, config.ActionDrop: bpf.Drop}
	all := make([]bpf.Rule, len(list))
	for i, r := range list {
		match, err := config.ParseFilter(r.Match, of)
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.Name, err)
		}
		all[i] = bpf.Rule{Name: r.Name, Match: match, Action: actions[r.Action]}
	}
	return all, nil
}

// SetFilter replaces the filter of a running flow; before is the old filter. One of the two filters
// decides on each packet, and the counters continue. After an error the old filter stays.
func (s *Source) SetFilter(from, before config.From) error {
	if err := checkTakeOver(from); err != nil {
		return err
	}
	return s.net.SetFilter(from, before)
}

// SetRank changes the position of a flow among the flows that share its interfaces. The XDP program
// asks flows in the order of their positions.
func (s *Source) SetRank(rank int) error {
	return s.net.each(func(i *xdp.Interface) error { return i.Rank(rank) })
}

// observeFilter adds the filter's counters to a status.
func (s *Source) observeFilter(to *status.Flow) error {
	counted, err := s.net.Selected()
	for _, r := range counted.Rules {
		match := ""
		if r.Match != nil {
			match = r.Match.String()
		}
		to.Rules = append(to.Rules, status.Rule{Name: r.Name, Match: match, Action: r.Action.String(), Packets: r.Packets, Bytes: r.Bytes})
	}
	for _, c := range counted.Own {
		to.FilterCounts = append(to.FilterCounts, status.FilterCount(c))
	}
	return err
}
