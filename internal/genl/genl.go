// Package genl sends requests of generic netlink families, in the network namespace of the calling
// thread.
//
// It does not use the header of package nl, Genlmsg: that one sends as reserved bytes two bytes
// that follow it in memory, and kernels refuse a request in which they are not zero
// (genl_header_check in net/netlink/genetlink.c, Linux 6.1).
package genl

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// header is struct genlmsghdr: command, version and two zeros.
type header [nl.SizeofGenlmsg]byte

func (h header) Len() int          { return len(h) }
func (h header) Serialize() []byte { return h[:] }

// Attributes are the values of a message's attributes, by type.
type Attributes map[uint16][]byte

// Parse reads a list of attributes, such as the value of a nested one.
func Parse(b []byte) (Attributes, error) {
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, err
	}
	out := make(Attributes, len(list))
	for _, a := range list {
		out[a.Attr.Type&nl.NLA_TYPE_MASK] = a.Value
	}
	return out, nil
}

// Ask sends one request of version 1 to a family and returns the attributes of the answer.
func Ask(family string, command uint8, request ...*nl.RtAttr) (Attributes, error) {
	answers, err := ask(family, command, 0, request)
	if err != nil {
		return nil, err
	}
	if len(answers) == 0 {
		return nil, fmt.Errorf("ask netlink family %s: there is no answer", family)
	}
	return attributes(family, answers[0])
}

// Set sends one request of version 1 to a family and waits for its acknowledgement.
func Set(family string, command uint8, request ...*nl.RtAttr) error {
	_, err := ask(family, command, unix.NLM_F_ACK, request)
	return err
}

func ask(family string, command uint8, flags int, request []*nl.RtAttr) ([][]byte, error) {
	id, err := familyID(family)
	if err != nil {
		return nil, fmt.Errorf("look for netlink family %s: %w", family, err)
	}
	answers, err := execute(id, header{command, 1}, flags, request)
	if err != nil {
		return nil, fmt.Errorf("ask netlink family %s: %w", family, err)
	}
	return answers, nil
}

// familyID asks the kernel for the number of a family.
func familyID(family string) (int, error) {
	name := nl.NewRtAttr(nl.GENL_CTRL_ATTR_FAMILY_NAME, nl.ZeroTerminated(family))
	answers, err := execute(nl.GENL_ID_CTRL, header{nl.GENL_CTRL_CMD_GETFAMILY, nl.GENL_CTRL_VERSION}, 0, []*nl.RtAttr{name})
	if err != nil {
		return 0, err
	}
	if len(answers) == 0 {
		return 0, unix.ENOENT
	}
	a, err := attributes("nlctrl", answers[0])
	if err != nil {
		return 0, err
	}
	id := a[nl.GENL_CTRL_ATTR_FAMILY_ID]
	if len(id) != 2 {
		return 0, fmt.Errorf("the answer has no family number")
	}
	return int(binary.NativeEndian.Uint16(id)), nil
}

func execute(family int, h header, flags int, request []*nl.RtAttr) ([][]byte, error) {
	req := nl.NewNetlinkRequest(family, flags)
	req.AddData(h)
	for _, a := range request {
		req.AddData(a)
	}
	return req.Execute(unix.NETLINK_GENERIC, 0)
}

func attributes(family string, answer []byte) (Attributes, error) {
	if len(answer) < nl.SizeofGenlmsg {
		return nil, fmt.Errorf("ask netlink family %s: the answer has %d bytes and no header", family, len(answer))
	}
	return Parse(answer[nl.SizeofGenlmsg:])
}
