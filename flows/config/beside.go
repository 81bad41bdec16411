package config

import "reflect"

// receiver is who has an interface first of the flows that take packets from it.
type receiver struct {
	path string // of the flow
	at   string // of the interface
	flow *Flow
	all  string // the flow that leaves nothing to those behind it; empty: there is none

	flows, rules int // of the interface so far
}

// maxBeside is how many flows may take packets from one interface, the seats of an XDP program. All of them together have maxRules rules.
const maxBeside = 16

// add counts a flow with its rules, of which an expression is one.
func (r *receiver) add(v *validator, path, name string, f *Flow) {
	r.flows++
	r.rules += max(1, len(f.From.Rules))
	v.check(r.flows <= maxBeside, join(path, "from"), "is number %d of the flows that take packets from %s; at most %d are possible", r.flows, quote(name), maxBeside)
	v.check(r.flows == 1 || r.rules <= maxRules, join(path, "from"), "makes it %d rules for interface %s, an expression counting as one; at most %d are possible", r.rules, quote(name), maxRules)
}

// receive notes that a flow takes packets from an interface, and refuses what several flows of one cannot have.
func (s *shared) receive(path, at, name string, f *Flow) {
	if name == "" || s.v.explained(at) {
		return
	}
	first, ok := s.receivers[name]
	if !ok || first.flow == f {
		s.interfaces.take(at, name)
		if !ok {
			one := &receiver{path: path, at: at, flow: f, all: decidesAll(path, f)}
			one.add(s.v, path, name, f)
			s.receivers[name] = one
		}
		return
	}
	first.add(s.v, path, name, f)
	if first.all != "" {
		s.v.refuse(first.all+".from", wrong("give it a filter, or make it the last of them",
			"decides on every packet of %s, so %s%s would get none", quote(name), path, s.v.inLine(path)))
	}
	first.all = decidesAll(path, f)
	for _, one := range []*receiver{first, {path: path, flow: f}} {
		if one.flow.From.Object != (Object{}) && !s.v.explained(join(one.path, "from.filter")) {
			s.v.refuse(join(one.path, "from.filter"), wrong("give an expression or rules",
				"a program of one's own decides on every packet, and interface %s is for several flows", quote(name)))
		}
	}
	for _, key := range []struct {
		name string
		a, b any
	}{
		{"worker", first.flow.Worker, f.Worker},
		{"from.queues", first.flow.From.Queues, f.From.Queues},
		{"from.zero_copy", first.flow.From.ZeroCopy, f.From.ZeroCopy},
		{"from.timestamps", first.flow.From.Timestamps, f.From.Timestamps},
		{"from.promiscuous", first.flow.From.Promiscuous, f.From.Promiscuous},
		{"from.beside", first.flow.From.Beside, f.From.Beside},
		{"from.priority", first.flow.From.Priority, f.From.Priority},
		{"from.busy_poll", first.flow.From.BusyPoll, f.From.BusyPoll},
	} {
		if at := join(path, key.name); !reflect.DeepEqual(key.a, key.b) && !s.v.explained(at) {
			s.v.refuse(at, wrong("say the same in both", "is another than in %s%s, with which the flow shares interface %s",
				first.path, s.v.inLine(first.path), quote(name)))
		}
	}
}

// decidesAll is the path of a flow that leaves no packet to flows behind it, or empty.
func decidesAll(path string, f *Flow) string {
	if n := len(f.From.Rules); n > 0 && f.From.Rules[n-1].Match == "" || f.From.Wanted() == "" {
		return path
	}
	return ""
}
