package starter

import (
	"path/filepath"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/umem"
)

// For is what a daemon with this configuration needs.
func For(c *config.Config) Options {
	o := Options{User: c.User, Keep: Needed, Sockets: []string{c.Control.Socket}}
	o.Dirs = append(o.Dirs, filepath.Dir(c.Control.Socket))
	for _, f := range c.Flows {
		if f.To.File != "" {
			o.Dirs = append(o.Dirs, filepath.Dir(f.To.File))
		}
	}
	if c.Region.Reserve {
		o.Pages = PagesFor(c.Region)
	}
	return o
}

// PagesFor is the huge pages a region takes: its own, and 2 MiB pages for the
// control area beside it. None for a region on ordinary pages.
func PagesFor(r config.Region) []Pages {
	node := -1
	if r.Node != nil {
		node = *r.Node
	}
	all := flows.RegionBytes(r)
	switch r.Pages {
	case config.PagesOrdinary:
		return nil
	case config.Pages1GiB:
		size := uint64(r.Size)
		return []Pages{{umem.Huge1G, node, size}, {umem.Huge2M, node, all - size}}
	}
	return []Pages{{umem.Huge2M, node, all}}
}
