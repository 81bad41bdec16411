package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/rdma"
)

// sizes are the message sizes of operations that accept any. Those of UD end with the MTU. Atomics
// have 8 bytes.
var sizes = []int{0, 1, 255, 4096, 65537, 1 << 20}

var transports = []rdma.Transport{rdma.RC, rdma.UC, rdma.UD}

// wholeMatrix runs the matrix with its own server.
func wholeMatrix(t *testing.T, p place) {
	t.Helper()
	matrixOf(t, p, "", transports...)
}

// matrixOf runs a part of the matrix, with options for the server.
func matrixOf(t *testing.T, p place, options string, transports ...rdma.Transport) {
	t.Helper()
	s := p.serveOn(t, p.asServer("-keep "+options, noDisk)...)
	n := matrix(t, p, transports...)
	if status := s.ended(); status != 0 || s.Errs.String() != "" {
		t.Errorf("the server ends with %d: %s%s", status, &s.Out, &s.Errs)
	}
	t.Logf("%d runs, %s", n, s.Out.String()[strings.LastIndex(s.Out.String(), "ended"):])
}

// matrix verifies every operation of some transports in each size, and that a request beyond the
// limits is refused. It returns the number of runs.
func matrix(t *testing.T, p place, transports ...rdma.Transport) (n int) {
	for _, transport := range transports {
		for _, o := range ops {
			if !transport.Allows(o.op) {
				continue
			}
			for _, size := range p.sizesOf(o.op) {
				verified(t, p, transport, o.name, o.op, size)
				n++
			}
		}
	}
	return n
}

// sizesOf returns the sizes of an operation.
func (p place) sizesOf(op rdma.Op) []int {
	if isAtomic(op) {
		return []int{8}
	}
	return p.sizes
}

// beyondStatus returns the status with which a request beyond the limits ends.
func (p place) beyondStatus(transport rdma.Transport, op rdma.Op) rdma.Status {
	switch {
	case transport != rdma.RC:
		return rdma.LocalLength
	case op == rdma.Send || op == rdma.SendImmediate:
		return p.tooLong
	}
	return rdma.RemoteAccess
}

func verified(t *testing.T, p place, transport rdma.Transport, name string, op rdma.Op, size int) {
	t.Helper()
	n, depth := 20, 8
	switch {
	case size > 1<<20:
		n, depth = 2, 1
	case size > 4096:
		n, depth = 5, 2
	}
	options := fmt.Sprintf("%s-test verify -beyond -transport %v -op %s -size %d -n %d -depth %d", p.matrix, transport, name, size, n, depth)
	status, out, errs := p.askFor(t, p.asClient(options)...)
	if transport == rdma.UD && size > p.mtu {
		if status != 1 || !strings.Contains(errs, rdma.LocalLength.String()) {
			t.Errorf("%s: status %d, %s%s", options, status, out, errs)
		}
		return
	}
	want := p.beyondStatus(transport, op).String()
	if status != 0 || errs != "" || !strings.Contains(out, "every byte as it should be") || !strings.Contains(out, "refused, as it must be: "+want) {
		t.Errorf("%s: status %d, %s%s", options, status, out, errs)
	}
}
