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
	if err == nil && from.LeavesQueries() {
		err = leaveQueries(&s, of)
	}
	return s, err
}

// queries matches messages of IGMP, and those of MLD, which are behind a hop-by-hop header (RFC 2710, section 3).
// The language gives and and or the same precedence.
const queries = "igmp or (ip6[6] = 0 and ip6[40] = 58)"

// leaveQueries puts a rule in front of a selection. If the flow took the queries of a multicast router or switch,
// the kernel would not answer them, and the memberships would end.
func leaveQueries(s *bpf.Selection, of linktype.Type) error {
	text := queries
	if of == linktype.Ethernet {
		text = queries + " or (vlan and (" + queries + "))"
	}
	match, err := config.ParseFilter(text, of)
	if err != nil {
		return err
	}
	if s.Rules == nil {
		s.Rules, s.Filter = []bpf.Rule{{Name: "filter", Match: s.Filter, Action: bpf.Take}}, nil
	}
	s.Rules = append([]bpf.Rule{{Name: config.QueryRule, Match: match, Action: bpf.Leave}}, s.Rules...)
	return nil
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
