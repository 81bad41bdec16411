package config

import "go.yaml.in/yaml/v4"

// config reads a whole file into c, which holds the defaults.
func (d *decoder) config(n *yaml.Node, c *Config) {
	d.mapping("", n, fields{
		"region":  func(p string, n *yaml.Node) { d.region(p, n, &c.Region) },
		"workers": func(p string, n *yaml.Node) { d.workers(p, n, c) },
		"user":    set(d, &c.User, parseText),
		"log":     func(p string, n *yaml.Node) { d.log(p, n, &c.Log) },
		"metrics": func(p string, n *yaml.Node) {
			d.mapping(p, n, fields{"listen": set(d, &c.Metrics.Listen, parseText)})
		},
		"control": func(p string, n *yaml.Node) {
			d.mapping(p, n, fields{"socket": set(d, &c.Control.Socket, parseText)})
		},
		"tls":   func(p string, n *yaml.Node) { d.tls(p, n, &c.TLS) },
		"flows": func(p string, n *yaml.Node) { d.flows(p, n, c) },
	})
}

func (d *decoder) region(path string, n *yaml.Node, r *Region) {
	d.mapping(path, n, fields{
		"size":    set(d, &r.Size, parseSize),
		"pages":   set(d, &r.Pages, oneOf(allPages)),
		"frame":   set(d, &r.Frame, parseInt),
		"extent":  set(d, &r.Extent, parseSize),
		"extents": set(d, &r.Extents, parseInt),
		"node":    setOptional(d, &r.Node, parseInt),
		"reserve": set(d, &r.Reserve, parseBool),
	})
}

func (d *decoder) log(path string, n *yaml.Node, l *Log) {
	d.mapping(path, n, fields{
		"level":  set(d, &l.Level, oneOf(allLevels)),
		"format": set(d, &l.Format, oneOf(allFormats)),
	})
}

func (d *decoder) workers(path string, n *yaml.Node, c *Config) {
	c.Workers = nil
	d.list(path, n, func(path string, n *yaml.Node) {
		w := NewWorker("")
		w.Pos = d.at(n)
		d.worker(path, n, &w)
		c.Workers = append(c.Workers, w)
	})
}

func (d *decoder) worker(path string, n *yaml.Node, w *Worker) {
	d.mapping(path, n, fields{
		"name":  set(d, &w.Name, parseText),
		"cpu":   setOptional(d, &w.CPU, parseInt),
		"wait":  set(d, &w.Wait, oneOf(allWaits)),
		"sleep": set(d, &w.Sleep, parseDuration),
	})
}

func (d *decoder) tls(path string, n *yaml.Node, t *TLS) {
	d.mapping(path, n, fields{
		"certificate": set(d, &t.Certificate, parseText),
		"key":         set(d, &t.Key, parseText),
		"authority":   set(d, &t.Authority, parseText),
	})
}
