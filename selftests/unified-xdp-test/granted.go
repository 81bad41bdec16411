package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/unifiedd/unifiedd/selftests/harness"
	"github.com/unifiedd/unifiedd/umem"
)

// granted has the features that the kernel granted.
type granted struct {
	Interface   string   `json:"interface"`
	MTU         int      `json:"mtu"`
	Queues      []uint32 `json:"queues"`
	Unbound     []uint32 `json:"unbound_queues"` // left to the host
	Ring        int      `json:"ring"`
	Fill        int      `json:"fill_ring"` // frames; zero without a receive ring
	Pages       string   `json:"pages"`
	Frame       uint32   `json:"frame"`    // bytes
	Capacity    uint32   `json:"capacity"` // bytes of a packet that one frame takes
	ZeroCopy    bool     `json:"zero_copy"`
	WhyCopy     string   `json:"why_copy,omitempty"`
	MultiBuffer bool     `json:"multi_buffer"`
	MaxPacket   uint32   `json:"max_packet"` // bytes; zero: no limit
	Program     string   `json:"program"`    // where it runs
	NeedWakeup  bool     `json:"need_wakeup"`
	Filter      string   `json:"filter,omitempty"`
}

// granted reads the features from the interface.
func (s *session) granted() granted {
	g, ports := s.iface.Granted(), s.iface.Ports()
	out := granted{Interface: s.iface.Name(), MTU: s.mtu, Unbound: append([]uint32{}, s.iface.Unbound()...), Ring: int(s.options.ring), Fill: ports[0].Limits().Supply,
		Pages: s.region.Pages().String(), Frame: s.region.FrameSize(), Capacity: umem.Shape{}.Capacity(s.region.FrameSize()),
		ZeroCopy: g.ZeroCopy, WhyCopy: g.WhyNotZeroCopy(), MultiBuffer: g.MultiBuffer, MaxPacket: g.MaxPacket,
		Program: g.Mode.String(), NeedWakeup: g.NeedWakeup, Filter: s.options.filter}
	if s.options.mode == tx {
		out.Program, out.Filter = "none", ""
	}
	for _, p := range ports {
		out.Queues = append(out.Queues, p.Queue())
	}
	if !g.ZeroCopy && out.WhyCopy == "" {
		out.WhyCopy = "asked for"
	}
	return out
}

// copying says whether the driver or the kernel copies packets.
func (g *granted) copying() string {
	if g.ZeroCopy {
		return "zero copy"
	}
	return "the kernel copies (" + g.WhyCopy + ")"
}

// fits says which packets the interface accepts.
func (g *granted) fits() string {
	var b strings.Builder
	fmt.Fprintf(&b, "frames of %d bytes take packets up to %d", g.Frame, g.Capacity)
	switch longest := uint32(g.MTU) + 14; {
	case g.MultiBuffer:
		b.WriteString(", longer ones take several (multi-buffer)")
	case g.Program != "none" && g.MaxPacket > 0 && longest > g.MaxPacket:
		fmt.Fprintf(&b, "; the MTU of %d allows longer ones, which are left to the host (-multi-buffer takes them)", g.MTU)
	default:
		fmt.Fprintf(&b, ", the MTU is %d", g.MTU)
	}
	return b.String()
}

// print prints it for people.
func (g *granted) print(w io.Writer) {
	queues := make(numbers, len(g.Queues))
	copy(queues, g.Queues)
	fmt.Fprintf(w, "interface  %s, queues %s", g.Interface, &queues)
	if len(g.Unbound) > 0 {
		rest := numbers(g.Unbound)
		fmt.Fprintf(w, " (the traffic of %s is left to the host)", &rest)
	}
	fmt.Fprintf(w, "\nregion     %s, rings of %d; %s\n", g.Pages, g.Ring, g.fits())
	fmt.Fprintf(w, "kernel     %s; XDP program: %s; says when to wake it: %s\n", g.copying(), g.Program, harness.YesNo(g.NeedWakeup))
	if g.Filter != "" {
		fmt.Fprintf(w, "filter     %s\n", g.Filter)
	}
}
