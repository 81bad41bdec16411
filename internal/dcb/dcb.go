// Package dcb reads what an interface does with priorities: Data Center Bridging, as dcb(8) shows it.
package dcb

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ErrNotSupported means that the interface's driver has no Data Center Bridging, or not that of IEEE 802.1Qaz.
var ErrNotSupported = errors.New("the driver has no settings of priorities (DCB)")

// Settings are those of an interface.
type Settings struct {
	// PFC has a bit for each priority that the link may pause.
	PFC uint8
	// DSCP maps DSCPs to priorities. A DSCP that is not in it has priority 0.
	DSCP map[uint8]uint8
	// TrustsDSCP says that a packet's DSCP counts, and not only the priority of its tag. Known is false if the
	// driver does not tell.
	TrustsDSCP, Known bool
}

// Numbers of include/uapi/linux/dcbnl.h.
const (
	rtmGetDCB = 78

	cmdIEEEGet = 21

	attrName = 1
	attrIEEE = 13

	ieeePFC      = 2
	ieeeApps     = 3
	ieeeAppTrust = 11

	ieeeApp = 1 // in ieeeApps

	selectorDSCP = 5
)

// message is struct dcbmsg.
type message struct{ family, command uint8 }

func (m *message) Len() int          { return 4 }
func (m *message) Serialize() []byte { return []byte{m.family, m.command, 0, 0} }

// Get asks the kernel, in the network namespace of the calling thread.
func Get(iface string) (Settings, error) {
	request := nl.NewNetlinkRequest(rtmGetDCB, 0)
	request.AddData(&message{command: cmdIEEEGet})
	request.AddData(nl.NewRtAttr(attrName, nl.ZeroTerminated(iface)))
	answers, err := request.Execute(unix.NETLINK_ROUTE, rtmGetDCB)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return Settings{}, ErrNotSupported
	case err != nil:
		return Settings{}, fmt.Errorf("ask for the priorities of %s: %w", iface, err)
	case len(answers) != 1 || len(answers[0]) < 4:
		return Settings{}, fmt.Errorf("ask for the priorities of %s: the kernel gives %d answers", iface, len(answers))
	}
	s, err := parse(answers[0][4:])
	if err != nil {
		return s, fmt.Errorf("ask for the priorities of %s: %w", iface, err)
	}
	return s, nil
}

// parse reads the attributes of an answer.
func parse(b []byte) (Settings, error) {
	s := Settings{DSCP: map[uint8]uint8{}}
	top, err := nl.ParseRouteAttr(b)
	if err != nil {
		return s, err
	}
	found := false
	for _, a := range top {
		if a.Attr.Type&^unix.NLA_F_NESTED != attrIEEE {
			continue
		}
		found = true
		all, err := nl.ParseRouteAttr(a.Value)
		if err != nil {
			return s, err
		}
		for _, one := range all {
			if err := s.read(one.Attr.Type&^unix.NLA_F_NESTED, one.Value); err != nil {
				return s, err
			}
		}
	}
	if !found {
		return s, ErrNotSupported
	}
	return s, nil
}

// read reads one attribute of IEEE 802.1Qaz.
func (s *Settings) read(kind uint16, b []byte) error {
	switch kind {
	case ieeePFC: // struct ieee_pfc: capability, then the bits
		if len(b) < 2 {
			return fmt.Errorf("struct ieee_pfc has %d bytes", len(b))
		}
		s.PFC = b[1]
	case ieeeApps:
		apps, err := nl.ParseRouteAttr(b)
		if err != nil {
			return err
		}
		for _, a := range apps { // struct dcb_app: selector, priority, protocol (2)
			if a.Attr.Type == ieeeApp && len(a.Value) >= 4 && a.Value[0] == selectorDSCP {
				s.DSCP[uint8(nl.NativeEndian().Uint16(a.Value[2:]))] = a.Value[1]
			}
		}
	case ieeeAppTrust:
		selectors, err := nl.ParseRouteAttr(b)
		if err != nil {
			return err
		}
		s.Known = true
		for _, one := range selectors {
			s.TrustsDSCP = s.TrustsDSCP || len(one.Value) > 0 && one.Value[0] == selectorDSCP
		}
	}
	return nil
}
