//go:build verbs && cgo

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/lifetime"
)

// addressHandle is the path to a peer, and its place in the table of the domain.
type addressHandle struct {
	life lifetime.Object
	pd   *domain
	ah   *C.struct_ibv_ah
	id   uint32
}

func (h *addressHandle) String() string { return h.life.String() }

var _ rdma.AddressHandle = (*addressHandle)(nil)

func (p *domain) NewAddressHandle(a rdma.Address) (rdma.AddressHandle, error) {
	h := &addressHandle{pd: p}
	if err := h.life.Begin(fmt.Sprintf("address handle of %s to %v", p.dev.title, a.GID), &p.life); err != nil {
		return nil, err
	}
	if err := h.make(a); err != nil {
		h.life.Release()
		return nil, err
	}
	return h, nil
}

func (h *addressHandle) make(a rdma.Address) (err error) {
	to, err := h.pd.dev.address(a)
	if err != nil {
		return fmt.Errorf("make %v: %w", h, err)
	}
	if h.id, err = h.pd.handles.take(); err != nil {
		return err
	}
	if errno := C.ud_create_ah(h.pd.pd, &to, &h.ah); errno != 0 {
		h.pd.handles.give(h.id)
		return refusal("make", h, unix.Errno(errno), routeRemedies)
	}
	C.ud_set_handle(h.pd.tables, C.uint32_t(h.id), h.ah)
	return nil
}

// routeRemedies are remedies for the kernel's errors when it looks up the route to a peer.
var routeRemedies = map[unix.Errno]string{
	unix.ENETUNREACH:  "no route leads to the peer's address: check addresses and routes of the interface",
	unix.EHOSTUNREACH: "the peer's address does not answer to ARP or neighbour discovery: check that it is up and on this link",
	unix.ETIMEDOUT:    "the peer's address does not answer to ARP or neighbour discovery: check that it is up and on this link",
	unix.ENODATA:      "the place of the GID table is empty: check the GID index",
	unix.EINVAL:       "check the GID index, and that the peer's GID is of the same kind",
}

func (h *addressHandle) ID() uint32 { return h.id }

func (h *addressHandle) Close() error {
	return h.life.Close(func() error {
		C.ud_set_handle(h.pd.tables, C.uint32_t(h.id), nil)
		if errno := C.ud_destroy_ah(h.ah); errno != 0 {
			return explain(unix.Errno(errno), nil)
		}
		h.pd.handles.give(h.id)
		return nil
	})
}

// hops is the default hop limit.
const hops = 64

// address converts an address to the form of libibverbs. The address names a port of the device.
func (d *device) address(a rdma.Address) (C.struct_ibv_ah_attr, error) {
	to := C.struct_ibv_ah_attr{
		dlid: C.uint16_t(a.LID), sl: C.uint8_t(a.SL), src_path_bits: C.uint8_t(a.PathBits), static_rate: C.uint8_t(a.StaticRate),
		port_num: C.uint8_t(a.Port),
	}
	if a.FlowLabel >= 1<<20 {
		return to, fmt.Errorf("flow label %#x: it has 20 bits", a.FlowLabel)
	}
	p, err := d.Port(a.Port)
	if err != nil {
		return to, err
	}
	if a.GID.IsZero() {
		if p.LinkLayer == rdma.LinkEthernet {
			return to, fmt.Errorf("the peer's GID is missing: port %d of %s is Ethernet, where there are no LIDs", a.Port, d.title)
		}
		return to, nil
	}
	if a.HopLimit == 0 {
		a.HopLimit = hops
	}
	if a.GIDIndex > math.MaxUint8 {
		return to, fmt.Errorf("place %d of the GID table: the verbs API has %d places", a.GIDIndex, math.MaxUint8+1)
	}
	to.is_global = 1
	to.grh = C.struct_ibv_global_route{dgid: C.union_ibv_gid(a.GID), flow_label: C.uint32_t(a.FlowLabel), sgid_index: C.uint8_t(a.GIDIndex),
		hop_limit: C.uint8_t(a.HopLimit), traffic_class: C.uint8_t(a.TrafficClass)}
	return to, nil
}

// addressOf is the inverse of address.
func addressOf(a C.struct_ibv_ah_attr) rdma.Address {
	of := rdma.Address{LID: uint16(a.dlid), SL: uint8(a.sl), PathBits: uint8(a.src_path_bits), StaticRate: uint8(a.static_rate), Port: uint8(a.port_num)}
	if a.is_global != 0 {
		of.GID, of.GIDIndex, of.HopLimit = rdma.GID(a.grh.dgid), uint16(a.grh.sgid_index), uint8(a.grh.hop_limit)
		of.TrafficClass, of.FlowLabel = uint8(a.grh.traffic_class), uint32(a.grh.flow_label)
	}
	return of
}
