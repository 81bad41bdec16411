package config

import (
	"errors"
	"path/filepath"
)

// maxRules is how many rules a flow may have.
const maxRules = 64

// filters checks what says which packets are taken.
func (v *validator) filters(path string, f *From) {
	_, mapping := v.places[join(path, "object")]
	_, named := v.places[join(path, "program")]
	switch {
	case v.explained(path):
	case f.Object != (Object{}) || mapping || named:
		v.object(path, &f.Object)
	case f.Rules != nil:
		v.rules(path, f.Rules)
	default:
		v.filter(path, f.Filter)
	}
}

// object checks the user's own program, and notes its digest.
func (v *validator) object(path string, o *Object) {
	file, program := join(path, "object"), join(path, "program")
	have := v.need(file, o.File, "the path of an ELF object")
	have = v.need(program, o.Program, "the name of the program in the object") && have
	if !have {
		return
	}
	if !filepath.IsAbs(o.File) {
		v.refuse(file, errors.New("is not an absolute path"))
		return
	}
	if v.CheckObject == nil {
		return
	}
	digest, err := v.CheckObject(o.File, o.Program)
	v.checkErr(file, err)
	o.Digest = digest
}

// rules checks rules, each of which decides on something.
func (v *validator) rules(path string, rules []Rule) {
	v.check(len(rules) > 0, path, "no rule is listed")
	v.check(len(rules) <= maxRules, path, "%d rules are too many; at most %d are possible", len(rules), maxRules)
	names := newTaken[string](v, "rule")
	for i := range rules {
		r, at := &rules[i], index(path, i)
		v.name(join(at, "name"), r.Name)
		names.take(join(at, "name"), r.Name)
		v.checkErr(join(at, "action"), member(r.Action, allActions))
		match := join(at, "match")
		v.filter(match, r.Match)
		if _, given := v.places[match]; r.Match == "" && !given && i < len(rules)-1 {
			v.refuse(at, wrong("give it match:, or make it the last", "matches every packet, so the rules behind it never decide"))
		}
	}
}
