package metrics

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestTable: a scrape of a status in which everything is there has every metric of the table and no other, each of the
// kind and with the labels that the table says.
func TestTable(t *testing.T) {
	var d status.Daemon
	fill(reflect.ValueOf(&d).Elem())
	d.Cluster.Names[0].State = status.NameGone
	for _, kind := range []string{"rdma-storage", "storage-network"} {
		f := d.Flows[0]
		f.Name, f.Kind = kind, kind
		f.Buffer, f.Joined, f.Rules, f.FilterCounts = nil, nil, nil, nil // of interfaces
		d.Flows = append(d.Flows, f)
	}
	d.Flows[0].Kind, d.Flows[0].Replay = "network-storage", nil
	d.Flows[1].Replay = nil
	d.Flows[0].Blocks, d.Flows[1].Receives, d.Flows[2].Receives = nil, nil, nil
	for i := range d.Flows {
		d.Flows[i].Hosts = &status.Hosts{Namespaces: slices.Clone(d.Flows[i].Hosts.Namespaces), Connected: d.Flows[i].Hosts.Connected, Commands: d.Flows[i].Hosts.Commands,
			Bytes: d.Flows[i].Hosts.Bytes, Rejected: d.Flows[i].Hosts.Rejected}
		d.Flows[i].Hosts.Namespaces[0].Leaving = false
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(collectFunc(func(out chan<- prometheus.Metric) { collect(out, &d) }))
	problems, err := testutil.GatherAndLint(r)
	testenv.Must(t, err)
	for _, p := range problems {
		t.Errorf("metric %s: %s", p.Metric, p.Text)
	}
	all, err := r.Gather()
	testenv.Must(t, err)
	found := map[string]bool{}
	for _, family := range all {
		found[family.GetName()] = true
		i := slices.IndexFunc(Table(), func(m Metric) bool { return m.Name == family.GetName() })
		if i < 0 {
			t.Errorf("%s is not in the table", family.GetName())
			continue
		}
		m, kind := Table()[i], map[string]Kind{"COUNTER": Counter, "GAUGE": Gauge, "HISTOGRAM": Histogram, "SUMMARY": Summary, "UNTYPED": Gauge}[family.GetType().String()]
		if m.Kind() != kind || m.Help != family.GetHelp() {
			t.Errorf("%s is a %s, and the table says %s", m.Name, family.GetType(), m.Kind())
		}
		for _, one := range family.GetMetric() {
			var labels []string
			for _, l := range one.GetLabel() {
				labels = append(labels, l.GetName())
			}
			if want := slices.Sorted(slices.Values(m.Labels)); !slices.Equal(labels, want) {
				t.Errorf("%s has the labels %v, want %v", m.Name, labels, want)
			}
		}
	}
	for i, m := range Table() {
		if !found[m.Name] {
			t.Errorf("a scrape has no %s", m.Name)
		}
		if slices.ContainsFunc(Table()[:i], func(o Metric) bool { return o.Name == m.Name }) {
			t.Errorf("%s is in the table twice", m.Name)
		}
	}
}

// fill makes everything be there in a status: one of each list, and one key in each map.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("a")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		for i := 0; i < v.NumField() && v.Type() != reflect.TypeFor[time.Time](); i++ {
			fill(v.Field(i))
		}
	}
}
