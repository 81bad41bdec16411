package starter

import (
	"path/filepath"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/pages"
	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
)

// For is what a daemon with this configuration needs.
func For(c *config.Config) Options {
	o := Options{User: c.User, Keep: Needed, Sockets: []string{c.Control.Socket}, Steering: flows.SteeringDir(c)}
	o.Dirs = append(o.Dirs, filepath.Dir(c.Control.Socket))
	for _, f := range c.Flows {
		if f.From.Beside != "" {
			o.Keep, o.Joins = o.Keep|Joining, true
		}
		if f.To.File != "" {
			o.Dirs = append(o.Dirs, filepath.Dir(f.To.File))
		}
	}
	if c.Region.Reserve {
		o.Pages = pages.For(c.Region)
	}
	return o
}
