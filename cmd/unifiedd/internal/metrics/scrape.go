package metrics

import (
	"maps"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/latency"
)

// scrape collects the metrics of one status, by the tags of its fields.
//
//	metric:"name"          the field is the value: a number, a time, a bool, a distribution
//	metric:"name,label"    a map: each key is a value of the label; a text: 1 for the label's value
//	metric:"name,label:x"  with that value of the label
//	metric:"name,=x"       1 if the text is x
//	label:"a=F,b=^G,c:x"   labels of all metrics in a struct, or in each one of a slice: its field F, the field G of what is around
//	                       it, or x; with "!F", one whose field F is true has no metrics
type scrape struct {
	out  chan<- prometheus.Metric
	sums map[string]*number // by metric and labels
}

// number is a value of a metric: the sum, if several fields have the same one.
type number struct {
	*described
	value  float64
	labels []string
}

// collect sends the metrics of a status.
func collect(out chan<- prometheus.Metric, d *status.Daemon) {
	s := scrape{out, map[string]*number{}}
	s.walk(reflect.ValueOf(d).Elem(), nil)
	s.special(d)
	for _, n := range s.sums {
		out <- prometheus.MustNewConstMetric(n.desc, n.kind, n.value, n.labels...)
	}
}

// walk collects the metrics of a struct and of those in it.
func (s *scrape) walk(v reflect.Value, labels map[string]string) {
	for i := range v.NumField() {
		field, tag := v.Field(i), v.Type().Field(i).Tag
		if rule, has := tag.Lookup("metric"); has {
			s.field(rule, field, labels)
			continue
		}
		rule, each := tag.Lookup("label")
		field = reflect.Indirect(field)
		switch {
		case field.Kind() == reflect.Struct && field.Type().PkgPath() == v.Type().PkgPath():
			s.inside(rule, field, v, labels)
		case field.Kind() == reflect.Slice && each:
			for i := range field.Len() {
				s.inside(rule, field.Index(i), v, labels)
			}
		}
	}
}

// inside collects the metrics of a struct that is in another one.
func (s *scrape) inside(rule string, v, around reflect.Value, labels map[string]string) {
	if labels = maps.Clone(labels); labels == nil {
		labels = map[string]string{}
	}
	for one := range strings.SplitSeq(rule, ",") {
		if name, skips := strings.CutPrefix(one, "!"); skips && v.FieldByName(name).Bool() {
			return
		}
		if label, constant, ok := strings.Cut(one, ":"); ok {
			labels[label] = constant
		} else if label, name, ok := strings.Cut(one, "="); ok {
			from := v
			if outer, is := strings.CutPrefix(name, "^"); is {
				from, name = around, outer
			}
			labels[label] = text(from.FieldByName(name))
		}
	}
	s.walk(v, labels)
}

// field collects the metric of a field.
func (s *scrape) field(rule string, v reflect.Value, labels map[string]string) {
	name, rest, _ := strings.Cut(rule, ",")
	label, constant, is := strings.Cut(rest, ":")
	if is {
		labels = maps.Clone(labels)
		labels[label] = constant
	}
	want, compares := strings.CutPrefix(rest, "=")
	values := make([]string, 0, 4)
	for _, l := range byName[name].labels {
		if value, has := labels[l]; has {
			values = append(values, value)
		}
	}
	switch {
	case compares:
		s.add(name, v.String() == want, values...)
	case v.Kind() == reflect.String:
		s.add(name, 1, append(values, v.String())...)
	default:
		s.add(name, v.Interface(), values...)
	}
}

// add collects a value. It adds nothing for a nil pointer, and each value of a map, whose key is the last label.
func (s *scrape) add(name string, value any, labels ...string) {
	d, n := byName[name], 0.0
	switch v := value.(type) {
	case time.Duration:
		n = v.Seconds()
	case time.Time:
		n = float64(v.UnixNano()) / 1e9
	case *latency.Distribution:
		histogram(s.out, d.desc, v, labels...)
		return
	case *latency.Summary:
		summary(s.out, d.desc, v, labels...)
		return
	default:
		r := reflect.ValueOf(value)
		switch {
		case r.Kind() == reflect.Pointer:
			if !r.IsNil() {
				s.add(name, r.Elem().Interface(), labels...)
			}
			return
		case r.Kind() == reflect.Map:
			for _, key := range r.MapKeys() {
				s.add(name, r.MapIndex(key).Interface(), append(labels[:len(labels):len(labels)], key.String())...)
			}
			return
		case r.Kind() == reflect.Bool:
			if r.Bool() {
				n = 1
			}
		case r.CanUint():
			n = float64(r.Uint())
		case r.CanInt():
			n = float64(r.Int())
		default:
			n = r.Float()
		}
	}
	key := name + "\xff" + strings.Join(labels, "\xff")
	if s.sums[key] == nil {
		s.sums[key] = &number{d, 0, labels}
	}
	s.sums[key].value += n
}

// text returns a label's value.
func text(v reflect.Value) string {
	if v.CanInt() {
		return strconv.FormatInt(v.Int(), 10)
	}
	return v.String()
}
