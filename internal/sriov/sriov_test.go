package sriov

import (
	"encoding/binary"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// words is a structure of 32-bit numbers as the kernel sends it.
func words(all ...uint32) (b []byte) {
	for _, w := range all {
		b = binary.NativeEndian.AppendUint32(b, w)
	}
	return b
}

// answer is an answer of the kernel with these settings for each VF.
func answer(functions ...map[int][]byte) []byte {
	list := nl.NewRtAttr(unix.IFLA_VFINFO_LIST|unix.NLA_F_NESTED, nil)
	for _, f := range functions {
		one := list.AddRtAttr(nl.IFLA_VF_INFO|unix.NLA_F_NESTED, nil)
		for _, kind := range slices.Sorted(maps.Keys(f)) {
			one.AddRtAttr(kind, f[kind])
		}
	}
	return append(nl.NewRtAttr(unix.IFLA_MTU, nl.Uint32Attr(1500)).Serialize(), list.Serialize()...)
}

// TestParse: settings are read as the kernel sends them, and those that the driver does not tell are unknown.
func TestParse(t *testing.T) {
	mac := append(words(3), append([]byte{2, 0x77, 0, 0, 0, 3}, make([]byte, 26)...)...)
	got, err := parse(answer(
		map[int][]byte{
			nl.IFLA_VF_MAC: mac, nl.IFLA_VF_VLAN: words(3, 5, 2), nl.IFLA_VF_SPOOFCHK: words(3, 1),
			nl.IFLA_VF_TRUST: words(3, 0), nl.IFLA_VF_LINK_STATE: words(3, nl.IFLA_VF_LINK_STATE_DISABLE), nl.IFLA_VF_TX_RATE: words(3, 100),
			nl.IFLA_VF_STATS: words(12, 7, 7), nl.IFLA_VF_VLAN_LIST: words(20, 1, 3, 5, 2), // with attributes in them
		},
		map[int][]byte{nl.IFLA_VF_SPOOFCHK: words(4, unset), nl.IFLA_VF_TRUST: words(4, unset), nl.IFLA_VF_LINK_STATE: words(4, 0)},
		map[int][]byte{nl.IFLA_VF_SPOOFCHK: words(5, 0), nl.IFLA_VF_TRUST: words(5, 1), nl.IFLA_VF_VLAN: {1, 2, 3}},
	))
	want := []Policy{
		{Number: 3, MAC: net.HardwareAddr{2, 0x77, 0, 0, 0, 3}, VLAN: 5, QoS: 2, Spoof: On, Trust: Off, Disabled: true, MaxRate: 100},
		{Number: 4},
		{Number: 5, Spoof: Off, Trust: On},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for n := range answer(map[int][]byte{nl.IFLA_VF_MAC: mac}) { // cut short, nothing is read beyond the end
		_, _ = parse(answer(map[int][]byte{nl.IFLA_VF_MAC: mac})[:n])
	}
	if On.String() != "on" || Off.String() != "off" || Unknown.String() != "unknown" {
		t.Error("a switch has a wrong name")
	}
}

// TestNone: an interface without VFs has no policies, and a device that is no VF is not taken for one.
func TestNone(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	testenv.Must(t, err)
	if p, err := Policies(lo.Index); err != nil || len(p) != 0 {
		t.Errorf("loopback: %+v, %v", p, err)
	}
	if p, err := Policies(1 << 30); !errors.Is(err, unix.ENODEV) {
		t.Errorf("no interface: %+v, %v", p, err)
	}
	for _, bus := range []string{"", "0000:00:99.0", "../..", "tap"} {
		if f, err := Of(bus); !errors.Is(err, ErrNotVF) {
			t.Errorf("%q: %+v, %v", bus, f, err)
		}
	}
}

// TestNumber: the number of a VF is that of the PF's link to it.
func TestNumber(t *testing.T) {
	dir := t.TempDir()
	for link, to := range map[string]string{"virtfn0": "../0000:02:10.0", "virtfn11": "../0000:02:10.2"} {
		testenv.Must(t, os.Symlink(to, filepath.Join(dir, link)))
	}
	if n, err := number(dir, "0000:02:10.2"); n != 11 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := number(dir, "0000:02:10.4"); err == nil {
		t.Error("a VF without a link has a number")
	}
}
