package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/record"
)

// ErrNoSteering: the card does not accept a rule.
var ErrNoSteering = errors.New("the card does not steer that")

// Steering is a set of rules in a card that steer packets to queues (ethtool calls them Rx
// classification, or ntuple, rules). Each is written to a record before it is inserted, so that
// another process finds the rules of a killed one.
type Steering struct {
	device *device
	name   string
	record *record.File
	note   steerNote
	texts  []string
}

// heldRule is a rule in the form in which the card has it.
type heldRule struct {
	Rule ruleSpec
	// Made says that the card has the rule. Otherwise it may have it.
	Made bool
}

// Steer makes the card of an interface, in the network namespace of the calling thread, put packets
// that match a tuple into one of the queues. The rules use the queues in turn. Records are in the
// directory dir. Either all rules are inserted or none. Errors match ErrNoSteering if the card is
// the cause. The caller closes the Steering.
func Steer(name string, tuples []filter.Tuple, queues []uint32, dir string) (s *Steering, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := SweepSteering(dir); err != nil {
		return nil, err
	}
	s = &Steering{name: name}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("steer packets of %s: %w", name, err), s.Close())
			s = nil
		}
	}()
	if s.device, err = findDevice(name); err != nil {
		return s, err
	}
	at, err := s.device.freeRules(name, len(tuples))
	if err != nil {
		return s, err
	}
	if s.record, s.note, err = newSteerRecord(dir, s.device.index); err != nil {
		return s, err
	}
	for i, t := range tuples {
		queue := queues[i%len(queues)]
		rule, err := ruleOf(t, queue)
		if err != nil {
			return s, fmt.Errorf("%w: %w", ErrNoSteering, err)
		}
		rule.Location = at[i]
		if err := s.insert(rule); err != nil {
			return s, s.refused(t, queue, err)
		}
		s.texts = append(s.texts, fmt.Sprintf("%s to queue %d", describeTuple(t), queue))
	}
	return s, nil
}

// Rules describes the card's rules for people.
func (s *Steering) Rules() []string { return slices.Clone(s.texts) }

// freeRules returns unused locations for n rules. If the card does not choose locations itself,
// they are the last ones, as with ethtool.
func (d *device) freeRules(name string, n int) (at []uint32, err error) {
	_, chooses, err := ruleCount(d.ctl, name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoSteering, d.noRules(name, err))
	}
	if chooses {
		return slices.Repeat([]uint32{locationAny}, n), nil
	}
	taken, room, err := ruleLocations(d.ctl, name)
	if err != nil {
		return nil, fmt.Errorf("list the card's rules: %w", err)
	}
	for location := room; location > 0 && len(at) < n; location-- {
		if !slices.Contains(taken, location-1) {
			at = append(at, location-1)
		}
	}
	if len(at) < n {
		return nil, fmt.Errorf("%w: it has room for %d rules, of which %d are taken, and %d are needed (see ethtool -n %s; ask for fewer combinations in the filter)",
			ErrNoSteering, room, len(taken), n, name)
	}
	return at, nil
}

// noRules returns why a card accepts no rules at all.
func (d *device) noRules(name string, err error) error {
	on, changes, asked := ntuple(d.ctl, name)
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: %w (run as root, or with CAP_NET_ADMIN)", ErrPermission, err)
	case !errors.Is(err, unix.EOPNOTSUPP):
		return err
	case asked == nil && !on && changes:
		return fmt.Errorf("its rules are switched off: %w (ethtool -K %s ntuple on)", err, name)
	case asked == nil && !on:
		return fmt.Errorf("this card, or its driver, has no rules: %w (remove steer, or use another card)", err)
	}
	return fmt.Errorf("the driver does not have such rules: %w (remove steer, or ask for something simpler: a protocol, a port)", err)
}

// refused returns an error that says which rule the card does not accept, and why.
func (s *Steering) refused(t filter.Tuple, queue uint32, err error) error {
	which := fmt.Sprintf("rule %q to queue %d", describeTuple(t), queue)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: %s: %w", ErrNoSteering, which, s.device.noRules(s.name, err))
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w: %s: the driver has no rules that compare these fields: %w (ask for others in the filter, or remove steer)", ErrNoSteering, which, err)
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%w: %s: somebody else has such a rule already: %w (see ethtool -n %s)", ErrNoSteering, which, err, s.name)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EBUSY), errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w: %s: the card has no room for it: %w (see ethtool -n %s)", ErrNoSteering, which, err, s.name)
	}
	return fmt.Errorf("%s: %w", which, err)
}

// insert records a rule, inserts it, and records the form in which the card has it.
func (s *Steering) insert(rule ruleSpec) error {
	s.note.Rules = append(s.note.Rules, heldRule{Rule: rule})
	if err := s.noteDown(); err != nil {
		return err
	}
	last := &s.note.Rules[len(s.note.Rules)-1]
	if err := insertRule(s.device.ctl, s.name, &last.Rule); err != nil {
		s.note.Rules = s.note.Rules[:len(s.note.Rules)-1]
		return err
	}
	if as, err := ruleAt(s.device.ctl, s.name, last.Rule.Location); err == nil {
		last.Rule = as // including what the driver adds
	}
	last.Made = true
	return s.noteDown()
}

// noteDown writes the rules to the record.
func (s *Steering) noteDown() error {
	if err := s.record.Put(s.note); err != nil {
		return fmt.Errorf("note which rules are ours: %w", err)
	}
	return nil
}

// Close removes the rules from the card, except rules that another process has removed or replaced.
// A second call does nothing.
func (s *Steering) Close() error {
	if s.device == nil {
		return nil
	}
	err := s.device.removeRules(s.note.Rules)
	if err != nil {
		err = fmt.Errorf("take rules out of %s: %w (see ethtool -n %s)", s.name, err, s.name)
	}
	switch {
	case s.record == nil:
	case err == nil:
		err = s.record.Remove()
	default: // the record stays for a later attempt
		err = errors.Join(err, s.record.Close())
	}
	err = errors.Join(err, s.device.close())
	s.device, s.record, s.note, s.texts = nil, nil, steerNote{}, nil
	return err
}

// removeRules removes rules from the card. If the card is gone, there is nothing to do.
func (d *device) removeRules(rules []heldRule) error {
	if len(rules) == 0 {
		return nil
	}
	link, err := d.handle.LinkByIndex(d.index)
	if err != nil {
		return nil
	}
	name := link.Attrs().Name
	var errs []error
	for _, r := range slices.Backward(rules) {
		if err := d.removeRule(name, r); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("rule %d: %w", r.Rule.Location, err))
		}
	}
	return errors.Join(errs...)
}

// removeRule removes a rule if it is still ours.
func (d *device) removeRule(name string, r heldRule) error {
	at := []uint32{r.Rule.Location}
	if at[0] == locationAny { // the card chooses the location
		var err error
		if at, _, err = ruleLocations(d.ctl, name); err != nil {
			return err
		}
	}
	for _, location := range at {
		now, err := ruleAt(d.ctl, name, location)
		if err != nil {
			continue // no rule is there
		}
		ours := r.Rule
		if ours.Location = now.Location; now == ours {
			return deleteRule(d.ctl, name, location)
		}
	}
	return nil
}

// Steers says what a card can steer.
type Steers struct {
	Rules int  // rules that it has
	Room  int  // the largest number of rules; 0: the driver does not say
	On    bool // it accepts rules
	Can   bool // it would accept rules once that is enabled
}

// SteersPackets returns what an interface's card can steer, in the network namespace of the calling
// thread. Errors match ErrNoSteering if it can steer nothing.
func SteersPackets(name string) (s Steers, err error) {
	d, err := findDevice(name)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if _, _, err := ruleCount(d.ctl, name); err != nil {
		return s, fmt.Errorf("%w: %w", ErrNoSteering, d.noRules(name, err))
	}
	at, room, err := ruleLocations(d.ctl, name)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return s, fmt.Errorf("list the card's rules: %w", err)
	}
	s.Rules, s.Room = len(at), int(room)
	s.On, s.Can, err = ntuple(d.ctl, name)
	if err == nil && !s.On && !s.Can {
		err = fmt.Errorf("%w: the driver lists rules, and takes none for this card", ErrNoSteering)
	}
	return s, err
}

// Types of rules: include/uapi/linux/ethtool.h.
const (
	flowTCP4  = 0x01
	flowUDP4  = 0x02
	flowSCTP4 = 0x03
	flowTCP6  = 0x05
	flowUDP6  = 0x06
	flowSCTP6 = 0x07
	flowIP4   = 0x0d // IPV4_USER_FLOW
	flowIP6   = 0x0e // IPV6_USER_FLOW
	flowEther = 0x12

	flowExt = 1 << 31 // FLOW_EXT: the VLAN is compared
	flowMAC = 1 << 30 // FLOW_MAC_EXT: the destination's Ethernet address is compared
)

// portFlows are the types of rules with ports, by protocol: for IPv4, and for IPv6.
var portFlows = map[uint8][2]uint32{
	filter.ProtoTCP: {flowTCP4, flowTCP6}, filter.ProtoUDP: {flowUDP4, flowUDP6}, filter.ProtoSCTP: {flowSCTP4, flowSCTP6},
}

// ruleOf returns the rule that steers packets matching a tuple to a queue.
func ruleOf(t filter.Tuple, queue uint32) (s ruleSpec, err error) {
	s.Queue = uint64(queue)
	if t.VLAN != 0 {
		s.FlowType |= flowExt
		binary.BigEndian.PutUint16(s.Ext.VLAN[:], t.VLAN)
		s.ExtMask.VLAN = [2]byte{0x0f, 0xff}
	}
	if t.Proto == 0 && !t.Src.IsValid() && !t.Dst.IsValid() {
		s.ether(t)
		return s, nil
	}
	var none [6]byte
	if t.SrcMAC != none {
		return s, fmt.Errorf("the Ethernet address of the source goes into no rule with an IP protocol or address: %s", describeTuple(t))
	}
	if t.DstMAC != none {
		s.FlowType |= flowMAC
		s.Ext.DstMAC, s.ExtMask.DstMAC = t.DstMAC, allOnes
	}
	s.ip(t)
	return s, nil
}

var allOnes = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// ether sets the fields of struct ethhdr: destination, source, type.
func (s *ruleSpec) ether(t filter.Tuple) {
	s.FlowType |= flowEther
	var none [6]byte
	if t.DstMAC != none {
		copy(s.Fields[0:], t.DstMAC[:])
		copy(s.Mask[0:], allOnes[:])
	}
	if t.SrcMAC != none {
		copy(s.Fields[6:], t.SrcMAC[:])
		copy(s.Mask[6:], allOnes[:])
	}
	kind := t.EtherType
	switch t.Version {
	case 4:
		kind = 0x0800
	case 6:
		kind = 0x86dd
	}
	s.number(12, kind)
}

// number compares 16 bits.
func (s *ruleSpec) number(at int, n uint16) {
	if n != 0 {
		binary.BigEndian.PutUint16(s.Fields[at:], n)
		s.Mask[at], s.Mask[at+1] = 0xff, 0xff
	}
}

// ip sets addresses, then ports or the protocol: struct ethtool_tcpip4_spec, ethtool_usrip4_spec,
// and those of IPv6.
func (s *ruleSpec) ip(t filter.Tuple) {
	long, which := 4, 0
	if t.Version == 6 {
		long, which = 16, 1
	}
	for i, p := range []netip.Prefix{t.Src, t.Dst} {
		if p.IsValid() {
			copy(s.Fields[i*long:], p.Addr().AsSlice())
			copy(s.Mask[i*long:], net.CIDRMask(p.Bits(), 8*long))
		}
	}
	rest := 2 * long
	if flows, ok := portFlows[t.Proto]; ok {
		s.FlowType |= flows[which]
		s.number(rest, t.SrcPort)
		s.number(rest+2, t.DstPort)
		return
	}
	s.FlowType |= []uint32{flowIP4, flowIP6}[which]
	proto := rest + 5 // after the first four bytes of the payload and the traffic class
	if t.Version == 4 {
		s.Fields[proto] = 1 // ETH_RX_NFC_IP4: the version
		proto++
	}
	if t.Proto != 0 {
		s.Fields[proto], s.Mask[proto] = t.Proto, 0xff
	}
}

// describeTuple describes what a rule compares, for people.
func describeTuple(t filter.Tuple) string {
	var all []string
	add := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	var none [6]byte
	add(t.VLAN != 0, "vlan %d", t.VLAN)
	add(t.SrcMAC != none, "ether src %s", net.HardwareAddr(t.SrcMAC[:]))
	add(t.DstMAC != none, "ether dst %s", net.HardwareAddr(t.DstMAC[:]))
	add(t.EtherType != 0, "ether proto 0x%04x", t.EtherType)
	add(t.Version == 4, "ip")
	add(t.Version == 6, "ip6")
	name, known := map[uint8]string{filter.ProtoTCP: "tcp", filter.ProtoUDP: "udp", filter.ProtoSCTP: "sctp"}[t.Proto]
	add(known, "%s", name)
	add(t.Proto != 0 && !known, "proto %d", t.Proto)
	add(t.Src.IsValid(), "src %s", t.Src)
	add(t.Dst.IsValid(), "dst %s", t.Dst)
	add(t.SrcPort != 0, "src port %d", t.SrcPort)
	add(t.DstPort != 0, "dst port %d", t.DstPort)
	return strings.Join(all, " ")
}

// steerPrefix begins the names of records.
const steerPrefix = "unifiedd-steering-"

// steerNote is the content of a record.
type steerNote struct {
	Namespace uint64 // of the network: the inode of its file
	Index     int    // of the interface in it
	Rules     []heldRule
}

// newSteerRecord makes a record, and its content for an interface without rules of this process.
func newSteerRecord(dir string, index int) (*record.File, steerNote, error) {
	namespace, err := networkNamespace()
	if err != nil {
		return nil, steerNote{}, err
	}
	r, err := record.New(filepath.Join(dir, steerPrefix))
	if err != nil {
		err = fmt.Errorf("note which rules are ours: %w (let this process write to that directory: a daemon's is that of control.socket)", err)
	}
	return r, steerNote{Namespace: namespace, Index: index}, err
}

// networkNamespace returns the identity of the calling thread's network namespace.
func networkNamespace() (uint64, error) {
	var s unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &s); err != nil {
		return 0, fmt.Errorf("look which network namespace this is: %w", err)
	}
	return s.Ino, nil
}

// SweepSteering removes rules of killed processes from cards. It uses the records in a directory,
// and works in the network namespace of the calling thread. It does not change rules of other
// namespaces, or those whose records it may not read.
func SweepSteering(dir string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := record.Sweep(filepath.Join(dir, steerPrefix), takeRulesBack); err != nil {
		return fmt.Errorf("take rules out of cards (see ethtool -n): %w", err)
	}
	return nil
}

// takeRulesBack removes the rules of a record, if it is about this network namespace.
func takeRulesBack(r *record.File) (done bool, err error) {
	var n steerNote
	noted, err := r.Get(&n)
	if err != nil || !noted {
		return err == nil, err
	}
	if namespace, err := networkNamespace(); err != nil || namespace != n.Namespace {
		return false, err
	}
	err = n.takeBack()
	return err == nil, err
}

func (n *steerNote) takeBack() (err error) {
	if len(n.Rules) == 0 {
		return nil
	}
	link, err := netlink.LinkByIndex(n.Index)
	if err != nil {
		return nil // the card is gone
	}
	d, err := findDevice(link.Attrs().Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	return d.removeRules(n.Rules)
}
