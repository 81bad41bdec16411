package doctor

import (
	"errors"
	"net"
	"time"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// packets tries AF_XDP and the XDP program on the loopback interface.
func packets(private bool) []Check {
	checks := onRegion(func(hands *umem.Holder) []Check {
		return []Check{sockets(hands), multiBuffer(hands)}
	})
	return append(checks, program(private)...)
}

// openLoopback opens an AF_XDP socket on the loopback interface and closes it again. It attaches no
// program, so the socket sees no packet.
func openLoopback(hands *umem.Holder, multiBuffer bool) (xdp.Granted, error) {
	lo, err := net.InterfaceByIndex(loopback)
	if err != nil {
		return xdp.Granted{}, err
	}
	x, err := xdp.Open(xdp.Config{
		Interface: lo.Name, Holder: hands, NoProgram: true, Policy: xdp.Copy, RingSize: 64,
		Shape: umem.Shape{MultiBuffer: multiBuffer}, BindTimeout: time.Millisecond,
	})
	if err != nil {
		return xdp.Granted{}, err
	}
	g := x.Granted()
	return g, x.Close()
}

func sockets(hands *umem.Holder) Check {
	const name = "AF_XDP"
	switch _, err := openLoopback(hands, false); {
	case err == nil:
		return ok(name, "a socket opens and takes the region")
	case errors.Is(err, xdp.ErrQueueBusy): // another program uses AF_XDP on loopback
		return ok(name, "a socket opens and takes the region")
	case errors.Is(err, xdp.ErrPermission):
		return fail(name, "%v", err).with("run as root, or grant CAP_NET_RAW")
	case errors.Is(err, xdp.ErrNotSupported):
		return fail(name, "%v", err).with("use a kernel with CONFIG_XDP_SOCKETS")
	default:
		return fail(name, "%v", err)
	}
}

// multiBuffer asks for packets of several frames. The MTU of the loopback interface is larger than
// a frame.
func multiBuffer(hands *umem.Holder) Check {
	const name = "AF_XDP multi-buffer"
	g, err := openLoopback(hands, true)
	switch {
	case err != nil && !errors.Is(err, xdp.ErrQueueBusy):
		return unknown(name, "no AF_XDP socket to ask for it")
	case err == nil && !g.MultiBuffer:
		return warn(name, "not granted: packets longer than a frame stay with the kernel").
			with("run Linux 6.6 or later, or keep the MTU below the frame size")
	}
	return ok(name, "packets may span frames")
}

// program loads the daemon's XDP program and attaches it.
func program(private bool) []Check {
	const name = "XDP program"
	p, err := bpf.Load(bpf.Config{Queues: 1, MultiBuffer: true, Timestamps: true})
	if err != nil {
		return []Check{fail(name, "%v", err).with("run as root, or grant CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN")}
	}
	checks := []Check{ok(name, "the kernel accepts it"), attach(p, private)}
	if err := p.Close(); err != nil {
		checks = append(checks, fail("XDP detach", "%v", err))
	}
	return checks
}

// attach tries a bpf_link, but only in a private namespace, where no other program uses the
// interface.
func attach(p *bpf.Program, private bool) Check {
	const name = "bpf_link for XDP"
	if !private {
		return unknown(name, "not tried: that takes a network namespace of its own, and so CAP_SYS_ADMIN")
	}
	if err := p.Attach(loopback, bpf.Generic); err != nil {
		return fail(name, "%v", err).with("run Linux 5.9 or later, with CAP_NET_ADMIN")
	}
	return ok(name, "the program attaches, and leaves with the process that attached it")
}
