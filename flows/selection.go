package flows

import (
	"fmt"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/linktype"
)

// selection is what the XDP program of a flow decides by, for packets of a link type.
func selection(from config.From, of linktype.Type) (s bpf.Selection, err error) {
	switch {
	case from.Object.File != "":
		s.Own, err = bpf.ReadObject(from.Object.File, from.Object.Program)
	case from.Rules != nil:
		s.Rules, err = rules(from.Rules, of)
	default:
		s.Filter, err = parseFilter(from.Filter, of)
	}
	return s, err
}

func rules(list []config.Rule, of linktype.Type) ([]bpf.Rule, error) {
	actions := map[config.Action]bpf.Action{config.ActionTake: bpf.Take, config.ActionLeave: bpf.Leave, config.ActionDrop: bpf.Drop}
	all := make([]bpf.Rule, len(list))
	for i, r := range list {
		match, err := parseFilter(r.Match, of)
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.Name, err)
		}
		all[i] = bpf.Rule{Name: r.Name, Match: match, Action: actions[r.Action]}
	}
	return all, nil
}

// parseFilter reads an expression; nil: every packet.
func parseFilter(text string, of linktype.Type) (*filter.Expr, error) {
	if text == "" {
		return nil, nil
	}
	expr, err := filter.ParseFor(of, text)
	if err != nil {
		return nil, fmt.Errorf("filter %q: %w", text, err)
	}
	return expr, nil
}

// fillSelected says what the filter has counted.
func (n *intake) fillSelected(s *FlowStatus) error {
	counted, err := n.net.Selected()
	for _, r := range counted.Rules {
		match := ""
		if r.Match != nil {
			match = r.Match.String()
		}
		s.Rules = append(s.Rules, RuleStatus{Name: r.Name, Match: match, Action: r.Action.String(), Packets: r.Packets, Bytes: r.Bytes})
	}
	for _, c := range counted.Own {
		s.FilterCounts = append(s.FilterCounts, CountStatus(c))
	}
	return err
}
