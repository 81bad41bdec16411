package main

import (
	"strings"
	"testing"
)

// peerCase is a program of rdma-core, with its options and the matching options of ours.
type peerCase struct {
	program, theirs, ours string
	short                 bool // part of the short form as well
}

var peerCases = []peerCase{
	{"ibv_rc_pingpong", "-n 100", "-peer pingpong -transport RC -n 100", true},
	{"ibv_uc_pingpong", "-n 100", "-peer pingpong -transport UC -n 100", false},
	{"ibv_ud_pingpong", "-n 100 -s 1024", "-peer pingpong -transport UD -n 100 -size 1024", false},
}

// ourselves runs our own program on both sides, in the protocol of the others.
func ourselves(t *testing.T, p place) {
	for _, c := range peerCases {
		if !p.whole && !c.short {
			continue
		}
		words := strings.Fields(p.patient + c.ours)
		s := p.serveOn(t, append(words, p.far.card, p.far.device, noDisk, "server")...)
		out := p.asked(t, append(words, p.card, p.device, noDisk, p.server)...)
		if status := s.End(); status != 0 || !strings.Contains(out, "usec") {
			t.Errorf("%s: the server ends with %d: %s%s; the client says %s", c.ours, status, &s.Out, &s.Errs, out)
		}
	}
}
