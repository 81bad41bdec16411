package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v4"
)

// maxValues is the largest number of values in a configuration, after alias expansion.
const maxValues = 100_000

// maxMerges is the largest nesting depth of merge keys.
const maxMerges = 8

// read reads the value of the setting at path from a node.
type read func(path string, n *yaml.Node)

// fields are the keys a mapping may have.
type fields map[string]read

// without returns the keys that are not among the pairs.
func (f fields) without(pairs []pair) []string {
	left := maps.Clone(f)
	for _, p := range pairs {
		delete(left, p.key.Value)
	}
	return slices.Sorted(maps.Keys(left))
}

// any reports whether one of the keys is present.
func (f fields) any(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return f[key] != nil })
}

// fitting returns the keys in left that may stand beside the keys of f that are not in left.
func (f fields) fitting(left []string, goes fits) (fit []string) {
	has := maps.Clone(f)
	for _, key := range left {
		delete(has, key)
	}
	for _, key := range left {
		if goes(has, key) {
			fit = append(fit, key)
		}
	}
	return fit
}

// decoder walks the tree of a file. The schema says how to read each value. The decoder knows
// mappings, lists, scalars and their places.
type decoder struct {
	*report
	left int // values that may still be read
}

func newDecoder(r *report) *decoder { return &decoder{report: r, left: maxValues} }

func (d *decoder) at(n *yaml.Node) Pos { return d.src.at(n.Line, n.Column) }

// spend counts a value. It returns false when there are too many values, and reports that once.
func (d *decoder) spend(n *yaml.Node) bool {
	d.left--
	if d.left == -1 {
		d.add(d.at(n), "", wrong("aliases count as what they stand for",
			"the configuration has more than %d values", maxValues))
	}
	return d.left >= 0
}

// value follows aliases and refuses tags. An alias of an alias cannot be
// written, so one step is enough.
func (d *decoder) value(path string, n *yaml.Node) (*yaml.Node, bool) {
	if !d.spend(n) {
		return nil, false
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Style&yaml.TaggedStyle != 0 {
		d.add(d.at(n), path, wrong("remove the tag", "has the tag %s", quote(n.Tag)))
	}
	return n, true
}

// reject records what is wrong with the value at path. It always returns false.
func (d *decoder) reject(path string, err error) bool {
	d.refuse(path, err)
	d.settle(path)
	return false
}

// mapping reads a mapping with exactly these keys. A null value is an empty mapping.
func (d *decoder) mapping(path string, n *yaml.Node, known fields) {
	d.mappingWhere(path, n, known, func(fields, string) bool { return true })
}

// fits reports whether a key may stand beside the keys that a mapping has.
type fits func(has fields, key string) bool

// mappingWhere is mapping for keys that exclude each other. It suggests only keys that may stand
// beside the keys that the mapping has.
func (d *decoder) mappingWhere(path string, n *yaml.Node, known fields, goes fits) {
	n, ok := d.value(path, n)
	if !ok || isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.reject(path, fmt.Errorf("a mapping of keys to values is needed, not %s", kind(n)))
		return
	}
	pairs := d.pairs(path, n, 0)
	for _, p := range pairs {
		if f, ok := known[p.key.Value]; ok {
			d.field(path, p, f)
		} else {
			left := known.without(pairs)
			d.unknown(path, p.key, left, known.fitting(left, goes))
		}
	}
}

func (d *decoder) field(path string, p pair, f read) {
	inner := join(path, p.key.Value)
	d.places[inner] = d.at(p.value)
	if isNull(p.value) {
		d.places[inner] = d.at(p.key)
	}
	f(inner, p.value)
}

// unknown refuses a key. If a key in left is probably the intended one, unknown does not report
// that key as missing. It suggests keys in fit.
func (d *decoder) unknown(path string, key *yaml.Node, left, fit []string) {
	where := ""
	if path != "" {
		where = " in " + path
	}
	hint := ""
	if len(fit) > 0 {
		hint = "possible here: " + nearest(key.Value, fit)
	}
	meant, ok := suggest(key.Value, fit)
	if !ok {
		meant, ok = suggest(key.Value, left)
	}
	if ok {
		hint = didYouMean(meant)
		d.settle(join(path, meant))
	}
	d.add(d.at(key), "", wrong(hint, "unknown key %s%s", quote(key.Value), where))
}

// list reads each item of a list.
func (d *decoder) list(path string, n *yaml.Node, item read) {
	n, ok := d.value(path, n)
	if !ok {
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.reject(path, fmt.Errorf("a list is needed, not %s", kind(n)))
		return
	}
	for i, v := range n.Content {
		if d.left < 0 {
			return
		}
		inner := index(path, i)
		d.places[inner] = d.at(v)
		item(inner, v)
	}
}

// scalar returns the text of a scalar, without quotes and escapes.
func (d *decoder) scalar(path string, n *yaml.Node) (string, bool) {
	n, ok := d.value(path, n)
	switch {
	case !ok:
		return "", false
	case isNull(n):
		return "", d.reject(path, errors.New("has no value"))
	case n.Kind != yaml.ScalarNode:
		return "", d.reject(path, fmt.Errorf("a single value is needed, not %s", kind(n)))
	}
	return n.Value, true
}

// set reads a scalar into dst.
func set[T any](d *decoder, dst *T, parse func(string) (T, error)) read {
	return func(path string, n *yaml.Node) {
		text, ok := d.scalar(path, n)
		if !ok {
			return
		}
		v, err := parse(text)
		if err != nil {
			d.reject(path, err)
			return
		}
		*dst = v
	}
}

// setOptional reads a scalar into a new value and points dst at it.
func setOptional[T any](d *decoder, dst **T, parse func(string) (T, error)) read {
	return func(path string, n *yaml.Node) {
		var v T
		set(d, &v, parse)(path, n)
		if !d.explained(path) {
			*dst = &v
		}
	}
}

// isNull reports whether a node is a null that is not quoted.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// kind describes a node for messages.
func kind(n *yaml.Node) string {
	switch {
	case isNull(n):
		return "nothing"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	}
	return quote(n.Value)
}

// mergeKey is the key of YAML 1.1 whose value's keys join the mapping it is in.
const mergeKey = "<<"

// pair is a key of a mapping and its value.
type pair struct {
	key, value *yaml.Node
}

// pairs returns the keys of a mapping: first the mapping's own keys, then the merged ones that it
// does not have.
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

// ownPairs returns the keys that are written in a mapping, and its merge keys separately.
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

// merged returns the keys that a merge key adds. Its value is a mapping or a list of mappings.
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
