package cm

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestNoModule: without the kernel module, the error is rdma.ErrUnsupported and says how to load
// it. Missing permission is another error.
func TestNoModule(t *testing.T) {
	for _, errno := range []error{unix.ENOENT, unix.ENXIO, unix.ENODEV} {
		err := openError(&fs.PathError{Op: "open", Path: node, Err: errno})
		if !errors.Is(err, rdma.ErrUnsupported) || !strings.Contains(err.Error(), "modprobe rdma_ucm") {
			t.Error(err)
		}
	}
	err := openError(&fs.PathError{Op: "open", Path: node, Err: unix.EACCES})
	if errors.Is(err, rdma.ErrUnsupported) || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "give the user access") {
		t.Error(err)
	}
	if c, err := Open(); err == nil {
		testenv.Check(t, errors.Join(c.Close(), c.Close()))
	} else if !errors.Is(err, rdma.ErrUnsupported) && !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
}

func TestSockets(t *testing.T) {
	for text, size := range map[string]uint16{"10.79.0.1:7471": 16, "[2001:db8::1]:65535": 28, "[fe80::1%7]:1": 28, "0.0.0.0:0": 16, "[::]:1": 28, "[::ffff:10.0.0.1]:9": 16} {
		a := netip.MustParseAddrPort(text)
		s, n, err := socketOf(a)
		if want := netip.AddrPortFrom(a.Addr().Unmap(), a.Port()); err != nil || n != size || s.addrPort() != want {
			t.Errorf("%s is %v in %d bytes, %v", text, s.addrPort(), n, err)
		}
	}
	if s, n, err := socketOf(netip.AddrPort{}); n != 0 || err != nil || s.addrPort().IsValid() {
		t.Errorf("no address is %v in %d bytes, %v", s.addrPort(), n, err)
	}
	if _, _, err := socketOf(netip.MustParseAddrPort("[fe80::1%no-such-card]:1")); err == nil {
		t.Error("there is an interface no-such-card")
	}
}

// TestEvents: eventOf copies only the fields that are valid for each kind of event.
func TestEvents(t *testing.T) {
	r := reported{uid: 1, event: uint32(Rejected), status: int32(ReasonConsumer), parameters: parameters{length: most, reads: 3, remoteReads: 4}}
	for i := range r.parameters.private {
		r.parameters.private[i] = byte(i)
	}
	e := eventOf(&r)
	r.parameters.private[0] = 99
	if len(e.said.private) != most || e.said.private[0] != 0 || e.said.private[254] != 254 || e.said.reads != 3 || e.said.remoteReads != 4 {
		t.Errorf("%+v", e)
	}
	r.event = uint32(Disconnected)
	if e := eventOf(&r); e.said.private != nil {
		t.Errorf("an end says %q", e.said.private)
	}
	if text := fmt.Sprint(Unreachable, TimewaitExit, EventKind(99)); text != "RDMA_CM_EVENT_UNREACHABLE RDMA_CM_EVENT_TIMEWAIT_EXIT event 99" {
		t.Error(text)
	}
}

// TestErrors: an event becomes an error that programs can match and users can look up.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		of    event
		kind  error
		errno unix.Errno
		want  string
	}{
		{event{kind: Rejected, status: 8}, ErrRejected, 0, "step: rejected: invalid service ID (check that a program listens on that port"},
		{event{kind: Rejected, status: 99}, ErrRejected, 0, "step: rejected: reason 99 [RDMA_CM_EVENT_REJECTED]"},
		{event{kind: Rejected, status: -int32(unix.ECONNREFUSED)}, ErrRejected, unix.ECONNREFUSED, "check that a program listens"},
		{event{kind: Rejected, status: 1 << 20}, ErrRejected, 0, "step: rejected [RDMA_CM"},
		{event{kind: Unreachable, status: -int32(unix.ETIMEDOUT)}, ErrUnreachable, unix.ETIMEDOUT, "check that the peer is up"},
		{event{kind: AddressError, status: -int32(unix.ENODEV)}, ErrUnreachable, unix.ENODEV, "rdma link"},
		{event{kind: Disconnected}, ErrDisconnected, 0, "has disconnected"},
		{event{kind: DeviceRemoval}, ErrDeviceGone, 0, "device is gone"},
	} {
		err := c.of.failure("step")
		if !errors.Is(err, c.kind) || c.errno != 0 && !errors.Is(err, c.errno) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.of, err, c.want)
		}
	}
}
