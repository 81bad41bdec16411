package dcb

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// attribute is a netlink attribute as the kernel writes it.
func attribute(kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// app is struct dcb_app.
func app(selector, priority uint8, protocol uint16) []byte {
	return attribute(ieeeApp, binary.NativeEndian.AppendUint16([]byte{selector, priority}, protocol)...)
}

// TestParse reads what a driver with all settings would answer. No card here has one.
func TestParse(t *testing.T) {
	const nested = 1 << 15
	pfc := make([]byte, 4+2+2+8*16)
	pfc[0], pfc[1] = 8, 1<<3
	apps := append(app(1, 6, 0x8906), append(app(selectorDSCP, 3, 26), app(selectorDSCP, 6, 48)...)...)
	all := append(attribute(ieeePFC, pfc...), attribute(ieeeApps|nested, apps...)...)
	s, err := parse(append(attribute(attrName, []byte("eth1\x00")...), attribute(attrIEEE|nested, all...)...))
	if err != nil || s.PFC != 1<<3 || len(s.DSCP) != 2 || s.DSCP[26] != 3 || s.DSCP[48] != 6 || s.Known {
		t.Errorf("without trust: %+v, %v", s, err)
	}
	all = append(all, attribute(ieeeAppTrust|nested, append(attribute(2, 255), attribute(ieeeApp, selectorDSCP)...)...)...)
	if s, err = parse(attribute(attrIEEE|nested, all...)); err != nil || !s.Known || !s.TrustsDSCP {
		t.Errorf("with trust: %+v, %v", s, err)
	}
	for name, b := range map[string][]byte{"a short struct ieee_pfc": attribute(attrIEEE, attribute(ieeePFC, 8)...), "an attribute that ends early": {40, 0, 13, 0, 1}} {
		if s, err := parse(b); err == nil || errors.Is(err, ErrNotSupported) {
			t.Errorf("%s gives %+v, %v", name, s, err)
		}
	}
}

// TestGet: veth has no such settings, and an interface that does not exist is another error.
func TestGet(t *testing.T) {
	testenv.Root(t)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	pair.A.Do(t, func() {
		if s, err := Get(pair.A.Ifname); !errors.Is(err, ErrNotSupported) {
			t.Errorf("veth has %+v, %v", s, err)
		}
		if s, err := Get("none"); err == nil || errors.Is(err, ErrNotSupported) {
			t.Errorf("no interface has %+v, %v", s, err)
		}
	})
}
