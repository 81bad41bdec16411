package config

import (
	"fmt"

	"go.yaml.in/yaml/v4"
)

// mergeKey is the key of YAML 1.1 whose value's keys join the mapping it is in.
const mergeKey = "<<"

// pair is a key of a mapping and its value.
type pair struct {
	key, value *yaml.Node
}

// pairs are the keys of a mapping, first those written in it, then those merged
// into it, less any which are there already.
func (d *decoder) pairs(path string, n *yaml.Node, depth int) []pair {
	own, merges := d.ownPairs(path, n)
	taken := make(map[string]bool, len(own))
	for _, p := range own {
		taken[p.key.Value] = true
	}
	for _, m := range merges {
		for _, p := range d.merged(path, m, depth+1) {
			if !taken[p.key.Value] {
				taken[p.key.Value] = true
				own = append(own, p)
			}
		}
	}
	return own
}

// ownPairs are the keys written in a mapping, and the merge keys apart.
func (d *decoder) ownPairs(path string, n *yaml.Node) (own, merges []pair) {
	first := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		p := pair{key: n.Content[i], value: n.Content[i+1]}
		switch before := first[p.key.Value]; {
		case !d.spend(p.key):
			return nil, nil
		case p.key.Kind != yaml.ScalarNode || p.key.Style&yaml.TaggedStyle != 0:
			d.add(d.at(p.key), "", fmt.Errorf("a key must be a plain word"))
		case before != nil:
			d.add(d.at(p.key), "", fmt.Errorf("key %s is given twice in one mapping, first in line %d",
				quote(p.key.Value), d.at(before).Line))
		case p.key.Value == mergeKey:
			first[mergeKey] = p.key
			merges = append(merges, p)
		default:
			first[p.key.Value] = p.key
			own = append(own, p)
		}
	}
	return own, merges
}

// merged are the keys a merge key brings in, from a mapping or a list of them.
func (d *decoder) merged(path string, m pair, depth int) []pair {
	n, ok := d.value(join(path, mergeKey), m.value)
	switch {
	case !ok:
		return nil
	case depth > maxMerges:
		d.add(d.at(m.key), "", fmt.Errorf("merge keys are nested more than %d deep", maxMerges))
		return nil
	case n.Kind == yaml.MappingNode:
		return d.pairs(path, n, depth)
	case n.Kind != yaml.SequenceNode:
		d.add(d.at(m.key), "", fmt.Errorf("the value of a merge key is %s, not a mapping", kind(n)))
		return nil
	}
	var all []pair
	for _, item := range n.Content {
		all = append(all, d.merged(path, pair{m.key, item}, depth+1)...)
	}
	return all
}
