package config

import (
	"errors"

	"go.yaml.in/yaml/v4"
)

// filter reads an expression, an object or rules.
func (d *decoder) filter(path string, n *yaml.Node, f *From) {
	v, ok := d.value(path, n)
	switch {
	case ok && v.Kind == yaml.MappingNode && len(v.Content) == 0:
		d.reject(path, errors.New("has neither object nor program"))
	case ok && v.Kind == yaml.MappingNode:
		d.mapping(path, n, fields{"object": set(d, &f.Object.File, parseText), "program": set(d, &f.Object.Program, parseText)})
	case ok && v.Kind == yaml.SequenceNode:
		f.Rules = []Rule{}
		d.list(path, n, func(path string, n *yaml.Node) { f.Rules = append(f.Rules, d.rule(path, n)) })
	default:
		set(d, &f.Filter, parseText)(path, n)
	}
}

func (d *decoder) rule(path string, n *yaml.Node) Rule {
	r := Rule{Action: ActionTake, Pos: d.at(n)}
	d.mapping(path, n, fields{
		"name":   set(d, &r.Name, parseText),
		"match":  set(d, &r.Match, parseText),
		"action": set(d, &r.Action, oneOf(allActions)),
	})
	return r
}
