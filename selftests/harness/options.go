package harness

import (
	"errors"
	"strings"

	"github.com/unifiedd/unifiedd/umem"
)

// Pages is the option for the kind of page of a region. It implements [flag.Value].
type Pages umem.PageSize

// PagesHelp is the help text of that option.
const PagesHelp = "`KIND` of the region's memory: 2m, 1g (huge pages) or ordinary"

var pageNames = map[umem.PageSize]string{umem.Huge2M: "2m", umem.Huge1G: "1g", umem.Ordinary: "ordinary"}

// String returns the kind in the form that Set accepts.
func (p *Pages) String() string { return pageNames[umem.PageSize(*p)] }

// Set accepts 2m, 1g or ordinary, in upper or lower case.
func (p *Pages) Set(text string) error {
	for kind, name := range pageNames {
		if strings.EqualFold(text, name) {
			*p = Pages(kind)
			return nil
		}
	}
	return errors.New("want 2m, 1g or ordinary")
}

// ReserveHelp is the help text of the option to reserve huge pages.
const ReserveHelp = "reserve huge pages that are missing, and give them back at the end (root)"
