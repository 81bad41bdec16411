package config

import "go.yaml.in/yaml/v4"

func (d *decoder) stages(path string, n *yaml.Node, f *Flow) {
	f.Stages = []Stage{}
	d.list(path, n, func(path string, n *yaml.Node) {
		s := Stage{Pos: d.at(n)}
		d.stage(path, n, &s)
		f.Stages = append(f.Stages, s)
	})
}

func (d *decoder) stage(path string, n *yaml.Node, s *Stage) {
	d.mapping(path, n, fields{
		"set": func(p string, n *yaml.Node) {
			s.Set = &Set{}
			d.setHeaders(p, n, s.Set)
		},
		"sequence": func(p string, n *yaml.Node) {
			s.Sequence = &Sequence{}
			d.mapping(p, n, fields{"offset": set(d, &s.Sequence.Offset, parseInt)})
		},
		"timestamp": func(p string, n *yaml.Node) {
			s.Timestamp = &Timestamp{}
			d.mapping(p, n, fields{"offset": set(d, &s.Timestamp.Offset, parseInt)})
		},
		"sum": func(p string, n *yaml.Node) {
			s.Sum = &Sum{}
			d.mapping(p, n, fields{"type": set(d, &s.Sum.Type, oneOf(allSumTypes))})
		},
	})
}

func (d *decoder) setHeaders(path string, n *yaml.Node, s *Set) {
	d.mapping(path, n, fields{
		"mac_source":       set(d, &s.MACSource, parseMAC),
		"mac_destination":  set(d, &s.MACDestination, parseMAC),
		"vlan":             set(d, &s.VLAN, parseInt),
		"ip_source":        set(d, &s.IPSource, parseIP),
		"ip_destination":   set(d, &s.IPDestination, parseIP),
		"port_source":      set(d, &s.PortSource, parseInt),
		"port_destination": set(d, &s.PortDestination, parseInt),
	})
}
