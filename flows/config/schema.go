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

func (d *decoder) flows(path string, n *yaml.Node, c *Config) {
	d.list(path, n, func(path string, n *yaml.Node) {
		f := NewFlow("")
		f.Pos = d.at(n)
		d.flow(path, n, &f)
		c.Flows = append(c.Flows, f)
	})
}

func (d *decoder) flow(path string, n *yaml.Node, f *Flow) {
	d.mapping(path, n, fields{
		"name":   set(d, &f.Name, parseText),
		"worker": set(d, &f.Worker, parseText),
		"from":   func(p string, n *yaml.Node) { d.from(p, n, &f.From) },
		"to":     func(p string, n *yaml.Node) { d.to(p, n, &f.To) },
	})
}

func (d *decoder) from(path string, n *yaml.Node, f *From) {
	d.mapping(path, n, fields{
		"interface":   set(d, &f.Interface, parseText),
		"queues":      func(p string, n *yaml.Node) { d.queues(p, n, f) },
		"zero_copy":   set(d, &f.ZeroCopy, oneOf(allZeroCopies)),
		"filter":      set(d, &f.Filter, parseText),
		"ring":        set(d, &f.Ring, parseInt),
		"busy_poll":   set(d, &f.BusyPoll, parseDuration),
		"timestamps":  set(d, &f.Timestamps, oneOf(allTimestamps)),
		"promiscuous": set(d, &f.Promiscuous, parseBool),
		"take_over":   set(d, &f.TakeOver, parseBool),
	})
}

// queues reads a list of numbers or the word all.
func (d *decoder) queues(path string, n *yaml.Node, f *From) {
	if v, ok := d.value(path, n); !ok || v.Kind != yaml.SequenceNode {
		set(d, &f.Queues, parseAllQueues)(path, n)
		return
	}
	f.Queues = []int{}
	d.list(path, n, func(path string, n *yaml.Node) {
		var q int
		set(d, &q, parseInt)(path, n)
		f.Queues = append(f.Queues, q)
	})
}

func (d *decoder) to(path string, n *yaml.Node, t *To) {
	d.mapping(path, n, fields{
		"file":    set(d, &t.File, parseText),
		"device":  set(d, &t.Device, parseText),
		"force":   set(d, &t.Force, parseBool),
		"layout":  set(d, &t.Layout, oneOf(allLayouts)),
		"segment": func(p string, n *yaml.Node) { d.segment(p, n, &t.Segment) },
		"prepare": set(d, &t.Prepare, oneOf(allPrepares)),
		"flush":   set(d, &t.Flush, parseDuration),
		"durable": set(d, &t.Durable, parseDurable),
	})
}

func (d *decoder) segment(path string, n *yaml.Node, s *Segment) {
	d.mapping(path, n, fields{
		"size":  set(d, &s.Size, parseSize),
		"every": set(d, &s.Every, parseDuration),
		"keep":  set(d, &s.Keep, parseInt),
	})
}
