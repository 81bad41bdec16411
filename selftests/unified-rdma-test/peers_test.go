package main

import (
	"strings"
	"testing"
)

// peerCase is a program of rdma-core or perftest, with its options and the matching options of ours.
type peerCase struct {
	program, theirs, ours string
	short                 bool // part of the short form as well
}

var peerCases = []peerCase{
	{"ibv_rc_pingpong", "-n 100", "-peer pingpong -transport RC -n 100", false},
	{"ibv_uc_pingpong", "-n 100", "-peer pingpong -transport UC -n 100", false},
	{"ibv_ud_pingpong", "-n 100 -s 1024", "-peer pingpong -transport UD -n 100 -size 1024", false},
	{"ib_send_lat", "-n 200", "-peer ib_send_lat -n 200", false},
	{"ib_send_lat", "-n 200 -c UD", "-peer ib_send_lat -n 200 -transport UD", false},
	{"ib_send_lat", "-n 200 -c UC -s 1000", "-peer ib_send_lat -n 200 -transport UC -size 1000", false},
	{"ib_send_bw", "-n 200", "-peer ib_send_bw -n 200", false},
	{"ib_write_lat", "-n 200", "-peer ib_write_lat -n 200", true},
	{"ib_write_lat", "-n 200 -c UC", "-peer ib_write_lat -n 200 -transport UC", false},
	{"ib_write_bw", "-n 200", "-peer ib_write_bw -n 200", false},
	{"ib_read_lat", "-n 200", "-peer ib_read_lat -n 200", false},
	{"ib_read_bw", "-n 200 -s 4096", "-peer ib_read_bw -n 200 -size 4096", false},
	{"ib_atomic_lat", "-n 200", "-peer ib_atomic_lat -n 200", false},
	{"ib_atomic_lat", "-n 200 -A CMP_AND_SWAP", "-peer ib_atomic_lat -n 200 -op compare-swap", false},
	{"ib_atomic_bw", "-n 200", "-peer ib_atomic_bw -n 200", false},
}

// ourselves runs our own program on both sides, in the protocols of the others.
func ourselves(t *testing.T, p place) {
	for _, c := range peerCases {
		if !p.whole && !c.short {
			continue
		}
		words := strings.Fields(p.patient + c.ours)
		s := p.serveOn(t, append(words, p.far.card, p.far.device, noDisk, "server")...)
		out := p.asked(t, append(words, p.card, p.device, noDisk, p.server)...)
		if status := s.ended(); status != 0 || !strings.Contains(out, "usec") && !strings.Contains(out, "BW peak") {
			t.Errorf("%s: the server ends with %d: %s%s; the client says %s", c.ours, status, &s.out, &s.errs, out)
		}
	}
}
