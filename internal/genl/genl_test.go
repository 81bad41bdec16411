package genl

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// TestAsk: Ask returns the features of the loopback interface, which every namespace has.
func TestAsk(t *testing.T) {
	device := nl.NewRtAttr(unix.ETHTOOL_A_FEATURES_HEADER|unix.NLA_F_NESTED, nil)
	device.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_NAME, nl.ZeroTerminated("lo"))
	a, err := Ask(unix.ETHTOOL_GENL_NAME, unix.ETHTOOL_MSG_FEATURES_GET, device)
	if err != nil {
		t.Fatal(err)
	}
	if len(a[unix.ETHTOOL_A_FEATURES_ACTIVE]) == 0 {
		t.Errorf("no active features in %v", a)
	}
	if _, err := Parse(a[unix.ETHTOOL_A_FEATURES_ACTIVE]); err != nil {
		t.Error(err)
	}
}

// TestNoFamily: the error for a family that the kernel does not have matches with errors.Is.
func TestNoFamily(t *testing.T) {
	if _, err := Ask("no_such_family", 1); !errors.Is(err, unix.ENOENT) {
		t.Errorf("got %v, want ENOENT", err)
	}
	if err := Set("no_such_family", 1); !errors.Is(err, unix.ENOENT) {
		t.Errorf("got %v, want ENOENT", err)
	}
}

// TestShortAnswer: Ask refuses an answer without a header.
func TestShortAnswer(t *testing.T) {
	if _, err := attributes("f", []byte{1, 2, 3}); err == nil {
		t.Error("three bytes were taken for a header")
	}
}
