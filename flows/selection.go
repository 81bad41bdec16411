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

// RuleStatus is a rule of a flow's filter, and what it has matched since that came into force.
type RuleStatus struct {
	Name    string `json:"name"`
	Match   string `json:"match,omitempty"` // as it was understood; empty: every packet
	Action  string `json:"action"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// CountStatus is a counter of the user's own program.
type CountStatus struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

// fillSelected says what the filter has counted.
func (n *intake) fillSelected(s *FlowStatus) error {
	counted, err := n.net.Selected()
	for _, r := range counted.Rules {
		match := ""
		if r.Match != nil {
			match = r.Match.String()
		}
		s.Rules = append(s.Rules, RuleStatus{r.Name, match, r.Action.String(), r.Packets, r.Bytes})
	}
	for _, c := range counted.Own {
		s.FilterCounts = append(s.FilterCounts, CountStatus(c))
	}
	return err
}
