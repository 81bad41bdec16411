package config

import (
	"fmt"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/linktype"
)

// ParseFilter parses a filter expression for packets of a link type. An empty text matches every packet, and
// the expression is nil.
func ParseFilter(text string, link linktype.Type) (*filter.Expr, error) {
	if text == "" {
		return nil, nil
	}
	expr, err := filter.ParseFor(link, text)
	if err != nil {
		return nil, fmt.Errorf("filter %q: %w", text, err)
	}
	return expr, nil
}
