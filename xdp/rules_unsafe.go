package xdp

import (
	"bytes"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Special locations: include/uapi/linux/ethtool.h.
const (
	locationSpecial = 1 << 31    // RX_CLS_LOC_SPECIAL, in a count: the card chooses the locations
	locationAny     = 0xffffffff // RX_CLS_LOC_ANY
)

// ruleSpec is struct ethtool_rx_flow_spec: the values and masks for a packet's header fields, and
// the queue.
type ruleSpec struct {
	FlowType uint32
	Fields   [52]byte // union ethtool_flow_union
	Ext      ruleExt
	Mask     [52]byte
	ExtMask  ruleExt
	Queue    uint64
	Location uint32
}

// ruleExt is struct ethtool_flow_ext. Its fields are in network byte order.
type ruleExt struct {
	_         [2]byte
	DstMAC    [6]byte
	VLANEther [2]byte
	VLAN      [2]byte
	Data      [8]byte
}

// ruleRequest is struct ethtool_rxnfc. The kernel writes no more locations than the request has
// room for.
type ruleRequest struct {
	cmd, flowType uint32
	data          uint64
	spec          ruleSpec
	count         uint32
	locations     [maxRules]uint32
}

// maxRules limits how many rules of a card are read.
const maxRules = 16384

func ruleIoctl(fd int, name string, r *ruleRequest) error {
	return ethtool(fd, name, unsafe.Pointer(r))
}

// ruleCount returns how many rules the card has, and whether it chooses their locations.
func ruleCount(fd int, name string) (n uint32, chooses bool, err error) {
	r := &ruleRequest{cmd: unix.ETHTOOL_GRXCLSRLCNT}
	err = ruleIoctl(fd, name, r)
	return r.count, r.data&locationSpecial != 0, err
}

// ruleLocations returns the locations of the card's rules, and how many rules it has room for.
func ruleLocations(fd int, name string) (at []uint32, room uint32, err error) {
	r := &ruleRequest{cmd: unix.ETHTOOL_GRXCLSRLALL, count: maxRules}
	if err := ruleIoctl(fd, name, r); err != nil {
		return nil, 0, err
	}
	if r.count > maxRules {
		return nil, 0, fmt.Errorf("the driver says it has %d rules, more than %d", r.count, maxRules)
	}
	return r.locations[:r.count], uint32(r.data &^ locationSpecial), nil
}

// ruleAt returns the rule at a location.
func ruleAt(fd int, name string, location uint32) (ruleSpec, error) {
	r := &ruleRequest{cmd: unix.ETHTOOL_GRXCLSRULE, spec: ruleSpec{Location: location}}
	err := ruleIoctl(fd, name, r)
	return r.spec, err
}

// insertRule inserts a rule into the card, and sets its location in s.
func insertRule(fd int, name string, s *ruleSpec) error {
	r := &ruleRequest{cmd: unix.ETHTOOL_SRXCLSRLINS, spec: *s}
	err := ruleIoctl(fd, name, r)
	if err == nil {
		s.Location = r.spec.Location
	}
	return err
}

// deleteRule removes the rule at a location from the card.
func deleteRule(fd int, name string, location uint32) error {
	return ruleIoctl(fd, name, &ruleRequest{cmd: unix.ETHTOOL_SRXCLSRLDEL, spec: ruleSpec{Location: location}})
}

// setFeatures is ETH_SS_FEATURES, the set of names of features.
const setFeatures = 4

// features is struct ethtool_gfeatures with room for all features.
type features struct {
	cmd, size uint32
	blocks    [32]struct{ available, requested, active, never uint32 }
}

// ntuple reports whether the card's rules are enabled, and whether that can be changed.
func ntuple(fd int, name string) (on, changes bool, err error) {
	q := &stringSetInfo{cmd: unix.ETHTOOL_GSSET_INFO, mask: 1 << setFeatures}
	if err := ethtool(fd, name, unsafe.Pointer(q)); err != nil {
		return false, false, err
	}
	n := int(min(q.count, maxCounters))
	b := make([]uint32, 3+roomy(n)*stringLength/4) // cmd, set, count, names
	b[0], b[1], b[2] = unix.ETHTOOL_GSTRINGS, setFeatures, uint32(n)
	if err := ethtool(fd, name, unsafe.Pointer(&b[0])); err != nil {
		return false, false, err
	}
	f := &features{cmd: unix.ETHTOOL_GFEATURES, size: 32}
	if err := ethtool(fd, name, unsafe.Pointer(f)); err != nil {
		return false, false, err
	}
	// Sound: the same memory seen as bytes, from the fourth word on.
	names := unsafe.Slice((*byte)(unsafe.Pointer(&b[3])), n*stringLength)
	for i := range min(n, 32*len(f.blocks)) {
		if text, _, _ := bytes.Cut(names[i*stringLength:(i+1)*stringLength], []byte{0}); string(text) == "rx-ntuple-filter" {
			block, bit := f.blocks[i/32], uint32(1)<<(i%32)
			return block.active&bit != 0, block.available&bit != 0 && block.never&bit == 0, nil
		}
	}
	return false, false, nil
}
