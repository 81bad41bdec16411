package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// Plan is what becomes of the flows of a running configuration when another takes its
// place. A flow is known by its name: another name is another flow.
type Plan struct {
	Kept    []string `json:"kept"`    // they go on as they are
	Changed []Change `json:"changed"` // they stop, and start anew; also where the filter of those changes whose packets the card steers
	Filters []string `json:"filters"` // they go on, with another filter
	// Subsystems are flows to NVMe hosts that go on with other namespaces or subsystems, or other hosts that may connect.
	Subsystems []string `json:"subsystems"`
	Added      []string `json:"added"`
	Removed    []string `json:"removed"`
	// Credentials are flows whose file of keys has other keys than those in use, and tls where certificates or authorities do.
	Credentials []string `json:"credentials,omitempty"`
	// Settings are the other settings that change. The daemon can apply those in [Changeable].
	Settings []string `json:"settings"`
}

// Change is a flow whose settings change.
type Change struct {
	Flow string   `json:"flow"`
	Keys []string `json:"keys"` // which of them, as they are called in the file
}

// Empty reports whether nothing changes.
func (p *Plan) Empty() bool {
	return len(p.Changed)+len(p.Filters)+len(p.Subsystems)+len(p.Added)+len(p.Removed)+len(p.Credentials)+len(p.Settings) == 0
}

// Compare plans the change from a running configuration to the next one. Both are
// complete. Where in their files settings are is no change, nor is the order of flows, but of those
// that take packets from one interface: it is part of what their filters say.
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

// change adds what becomes of a flow that is in both.
func (p *Plan) change(old, next *Flow) {
	switch keys := flowKeys(old, next); {
	case keys == nil:
		p.Kept = append(p.Kept, next.Name)
	case slices.Equal(keys, []string{"from.filter"}) && next.Kind() != KindStorageNetwork && next.From.Steer == "":
		p.Filters = append(p.Filters, next.Name)
	case len(without(keys, "to.namespaces", "to.hosts", "to.allow_any_host", "to.subsystems")) == 0 && comeAndGo(old.To.Served(), next.To.Served()):
		p.Subsystems = append(p.Subsystems, next.Name)
	default:
		p.Changed = append(p.Changed, Change{next.Name, keys})
	}
}

// reorder moves a kept flow to Filters if another flow of its interface is now asked first.
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

// before returns the flows that are asked for packets of f's interfaces before f. It leaves out
// flows that are not in the other configuration.
func before(c, other *Config, f *Flow) (names []string) {
	if f.From.Mirror != "" {
		return nil
	}
	for i := range c.Flows {
		one := &c.Flows[i]
		shares := func(f *Flow) bool {
			return one.From.Mirror == "" && one.From.Interface != "" && slices.ContainsFunc(one.From.All(), func(name string) bool { return slices.Contains(f.From.All(), name) })
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

// without are the keys but for some.
func without(keys []string, but ...string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return slices.Contains(but, key) })
}

// comeAndGo tells whether namespaces only come and go: one whose file or device is in both lists is the same in both, and of the same subsystem, since it cannot be open twice.
func comeAndGo(old, next []Served) bool {
	for _, n := range unplaced(next) {
		i := slices.IndexFunc(old, func(o Served) bool { return o.Path() == n.Path() })
		if i >= 0 && unplaced(old)[i] != n {
			return false
		}
	}
	return true
}

// Flow is the flow of that name, or nil.
func (c *Config) Flow(name string) *Flow {
	for i := range c.Flows {
		if c.Flows[i].Name == name {
			return &c.Flows[i]
		}
	}
	return nil
}

// Changeable tells whether the setting at path may change while a daemon runs. Flows
// may, but for their places in the list.
func Changeable(path string) bool { return path == "log.level" }

// settings returns the settings outside flows in which two configurations differ.
func settings(a, b *Config) []string {
	x, y := *a, *b
	x.Flows, y.Flows = nil, nil
	x.Workers, y.Workers = unplaced(x.Workers), unplaced(y.Workers)
	return differences("", reflect.ValueOf(x), reflect.ValueOf(y))
}

// flowKeys returns the settings in which two flows differ; nil: none.
func flowKeys(a, b *Flow) []string {
	x, y := *a, *b
	for _, f := range []*Flow{&x, &y} {
		f.Stages, f.To.Peers, f.From.Rules, f.To.Namespaces = unplaced(f.Stages), unplaced(f.To.Peers), unplaced(f.From.Rules), unplaced(f.To.Namespaces)
		f.To.Subsystems = unplaced(f.To.Subsystems)
		for i := range f.To.Subsystems {
			f.To.Subsystems[i].Namespaces = unplaced(f.To.Subsystems[i].Namespaces)
		}
	}
	keys := differences("", reflect.ValueOf(x), reflect.ValueOf(y))
	for i, key := range keys {
		if key == "from.rules" || strings.HasPrefix(key, "from.object.") {
			keys[i] = "from.filter" // one setting, of three forms
		}
		if key == "from.comments" { // they are part of the list
			keys[i] = "from.interfaces"
		}
	}
	return slices.Compact(paces(keys))
}

// unplaced is a copy of the items without their places in the file.
func unplaced[T any](items []T) []T {
	items = slices.Clone(items)
	for i := range items {
		reflect.ValueOf(&items[i]).Elem().FieldByName("Pos").SetZero()
	}
	return items
}

// differences are the paths of the settings below path in which two values differ. A
// list is one setting.
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

// keyOf is the key in a file of a field: TakeOver is take_over, RDMA is rdma, AnyGID is any_gid.
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

// sameProcess refuses what differs from the configuration a daemon runs with, and
// cannot change before it ends.
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

// with says which value a daemon runs with, where one word does.
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
