package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// Plan is the effect on flows when another configuration replaces the running one. The name
// identifies a flow: a flow with another name is another flow.
type Plan struct {
	Kept    []string `json:"kept"`    // flows that continue unchanged
	Changed []Change `json:"changed"` // flows that restart, also for a new filter if the card steers
	Filters []string `json:"filters"` // flows that continue with another filter or other multicast groups
	// Subsystems are flows to NVMe hosts that continue with other namespaces, subsystems or permitted
	// hosts, or with a disk that has another size.
	Subsystems []string `json:"subsystems"`
	Groups     []string `json:"groups,omitempty"` // flows that continue with other members of their group
	Added      []string `json:"added"`
	Removed    []string `json:"removed"`
	// Credentials are flows whose key file has other keys than those in use. The entry tls stands for
	// changed certificates or authorities.
	Credentials []string `json:"credentials,omitempty"`
	// Settings are the other settings that change. The daemon can apply those for which
	// [Changeable] is true.
	Settings []string `json:"settings"`
}

// Change is a flow whose settings change.
type Change struct {
	Flow string   `json:"flow"`
	Keys []string `json:"keys"` // the settings that change, by their paths in the file
}

// Empty reports whether nothing changes.
func (p *Plan) Empty() bool {
	return len(p.Changed)+len(p.Filters)+len(p.Subsystems)+len(p.Groups)+len(p.Added)+len(p.Removed)+len(p.Credentials)+len(p.Settings) == 0
}

// Compare plans the change from a running configuration to the next one. Both are complete. The
// place of a setting in the file does not matter. The order of flows matters only for flows that
// take packets from the same interface, because it affects their filters.
func Compare(running, next *Config) Plan {
	p := Plan{Settings: settings(running, next)}
	for i := range next.Flows {
		f := &next.Flows[i]
		switch old := running.Flow(f.Name); {
		case old == nil:
			p.Added = append(p.Added, f.Name)
		default:
			p.change(old, f)
		}
	}
	p.reorder(running, next)
	for i := range running.Flows {
		if name := running.Flows[i].Name; next.Flow(name) == nil {
			p.Removed = append(p.Removed, name)
		}
	}
	return p
}

// change adds a flow that is in both configurations to the plan.
func (p *Plan) change(old, next *Flow) {
	switch keys := flowKeys(old, next); {
	case keys == nil:
		p.Kept = append(p.Kept, next.Name)
	case len(without(keys, "from.filter", "from.join")) == 0 && next.Kind() != KindStorageNetwork && next.From.Steer == "":
		p.Filters = append(p.Filters, next.Name)
	case len(without(keys, "to.namespaces", "to.hosts", "to.allow_any_host", "to.ana", "to.subsystems")) == 0 && comeAndGo(old.To.Served(), next.To.Served()):
		p.Subsystems = append(p.Subsystems, next.Name)
	case slices.Equal(keys, []string{"to.group"}) && sameButOthers(old.To.Replicas, next.To.Replicas):
		p.Groups = append(p.Groups, next.Name)
	default:
		p.Changed = append(p.Changed, Change{next.Name, keys})
	}
}

// reorder moves a kept flow to Filters if other flows of its interface now precede it.
func (p *Plan) reorder(running, next *Config) {
	for i := range next.Flows {
		f := &next.Flows[i]
		at := slices.Index(p.Kept, f.Name)
		if at >= 0 && !slices.Equal(before(running, next, f), before(next, running, f)) {
			p.Kept = slices.Delete(p.Kept, at, at+1)
			p.Filters = append(p.Filters, f.Name)
		}
	}
}

// before returns the flows that precede f in the filters of f's interfaces. It leaves out flows
// that are not in the other configuration.
func before(c, other *Config, f *Flow) (names []string) {
	if !f.From.Takes() {
		return nil
	}
	for i := range c.Flows {
		one := &c.Flows[i]
		shares := func(f *Flow) bool {
			return one.From.Takes() && one.From.Interface != "" && slices.ContainsFunc(one.From.All(), func(name string) bool { return slices.Contains(f.From.All(), name) })
		}
		switch {
		case one.Name == f.Name:
			slices.Sort(names)
			return names
		case other.Flow(one.Name) != nil && shares(f):
			names = append(names, one.Name)
		}
	}
	return names
}

// without returns the keys except some.
func without(keys []string, but ...string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return slices.Contains(but, key) })
}

// sameButOthers reports whether two groups differ only in which other members there are.
func sameButOthers(old, next *Replicas) bool {
	if old == nil || next == nil {
		return false
	}
	a, b := *old, *next
	i, j := a.Own(), b.Own()
	if i < 0 || j < 0 || a.NumberOf(i) != b.NumberOf(j) {
		return false
	}
	own, same := a.Members[i], b.Members[j]
	own.Number, own.Joins, same.Number, same.Joins = 0, false, 0, false
	a.Members, b.Members = nil, nil
	return reflect.DeepEqual(own, same) && reflect.DeepEqual(a, b)
}

// comeAndGo reports whether the lists differ only by added and removed namespaces, and by ANA states. A file or device
// that is in both lists must be the same namespace of the same subsystem, because it cannot be open
// twice.
func comeAndGo(old, next []Served) bool {
	for _, n := range next {
		i := slices.IndexFunc(old, func(o Served) bool { return o.Path() == n.Path() })
		if i >= 0 && !old[i].Same(n) {
			return false
		}
	}
	return true
}

// Flow returns the flow with a name, or nil.
func (c *Config) Flow(name string) *Flow {
	for i := range c.Flows {
		if c.Flows[i].Name == name {
			return &c.Flows[i]
		}
	}
	return nil
}

// Changeable reports whether the setting at path may change while a daemon runs. It does not cover
// flows, which may change.
func Changeable(path string) bool { return path == "log.level" || path == "cluster.peers" }

// settings returns the settings outside flows in which two configurations differ.
func settings(a, b *Config) []string {
	x, y := *a, *b
	x.Flows, y.Flows = nil, nil
	x.Workers, y.Workers = unplaced(x.Workers), unplaced(y.Workers)
	x.Attach.Programs, y.Attach.Programs = unplaced(x.Attach.Programs), unplaced(y.Attach.Programs)
	x.Cluster.Peers, y.Cluster.Peers = unplaced(x.Cluster.Peers), unplaced(y.Cluster.Peers)
	x.Attach.Channels, y.Attach.Channels = unplaced(x.Attach.Channels), unplaced(y.Attach.Channels)
	x.Attach.States, y.Attach.States = unplaced(x.Attach.States), unplaced(y.Attach.States)
	return differences("", reflect.ValueOf(x), reflect.ValueOf(y))
}

// flowKeys returns the settings in which two flows differ; nil: none.
func flowKeys(a, b *Flow) []string {
	x, y := *a, *b
	for _, f := range []*Flow{&x, &y} {
		f.Stages, f.To.Peers, f.From.Rules, f.To.Namespaces = unplaced(f.Stages), unplaced(f.To.Peers), unplaced(f.From.Rules), unplaced(f.To.Namespaces)
		for i := range f.Stages {
			f.Stages[i].Mold, f.Stages[i].Counter = f.Stages[i].Mold.unplaced(), f.Stages[i].Counter.unplaced()
		}
		f.To.Subsystems, f.From.Join = unplaced(f.To.Subsystems), unplaced(f.From.Join)
		for i := range f.To.Subsystems {
			f.To.Subsystems[i].Namespaces = unplaced(f.To.Subsystems[i].Namespaces)
		}
	}
	keys := differences("", reflect.ValueOf(x), reflect.ValueOf(y))
	for i, key := range keys {
		if key == "from.rules" || strings.HasPrefix(key, "from.object.") {
			keys[i] = "from.filter" // one setting in three forms
		}
		if key == "to.replicas" { // the group of a log
			keys[i] = "to.group"
		}
		if side, key, is := strings.Cut(key, ".class."); is { // in the mapping of the device
			keys[i] = side + ".rdma." + key
		}
		if key == "from.comments" { // comments are part of the list of interfaces
			keys[i] = "from.interfaces"
		}
	}
	return slices.Compact(paces(keys))
}

// unplaced returns a copy of the items without their places in the file.
func unplaced[T any](items []T) []T {
	items = slices.Clone(items)
	for i := range items {
		reflect.ValueOf(&items[i]).Elem().FieldByName("Pos").SetZero()
	}
	return items
}

// differences returns the paths of the settings below path in which two values differ. A list
// counts as one setting.
func differences(path string, a, b reflect.Value) (paths []string) {
	if a.Kind() != reflect.Struct {
		if !reflect.DeepEqual(a.Interface(), b.Interface()) {
			paths = append(paths, path)
		}
		return paths
	}
	for i := range a.NumField() {
		if name := a.Type().Field(i).Name; name != "Pos" && name != "Named" {
			paths = append(paths, differences(join(path, keyOf(name)), a.Field(i), b.Field(i))...)
		}
	}
	return paths
}

// keyOf returns the key in a file for a field: take_over for TakeOver, rdma for RDMA, any_gid for
// AnyGID.
func keyOf(field string) string {
	var b strings.Builder
	for i, c := range field {
		if i > 0 && unicode.IsUpper(c) && unicode.IsLower(rune(field[i-1])) {
			b.WriteByte('_')
		}
		b.WriteRune(c)
	}
	return strings.ToLower(b.String())
}

// sameProcess refuses settings that differ from the running configuration and cannot change before
// the daemon ends.
func (v *validator) sameProcess() {
	if v.Running == nil {
		return
	}
	for _, path := range settings(v.Running, v.Config) {
		if Changeable(path) {
			continue
		}
		v.refuse(path, wrong("restart it for this", "cannot change while the daemon runs%s", v.Running.with(path)))
	}
}

// with describes for messages the value with which a daemon runs. For a list it returns an empty
// text.
func (c *Config) with(path string) string {
	at := reflect.ValueOf(*c)
	for key := range strings.SplitSeq(path, ".") {
		at = at.FieldByNameFunc(func(name string) bool { return keyOf(name) == key })
	}
	switch {
	case at.Kind() == reflect.Slice:
		return ""
	case at.IsZero() && at.Kind() != reflect.Bool && at.Kind() != reflect.Int:
		return ", without it"
	case at.Kind() == reflect.Pointer:
		at = at.Elem()
	}
	return fmt.Sprintf(", with %v", at.Interface())
}
