package initramfs

import (
	"reflect"
	"testing"
)

const someDeps = `kernel/net/igb.ko.xz: kernel/i2c-algo-bit.ko.xz kernel/dca.ko.xz
kernel/dca.ko.xz:
kernel/i2c-algo-bit.ko.xz:
kernel/nvme/nvme.ko: kernel/nvme/nvme-core.ko kernel/dca.ko.xz
kernel/nvme/nvme-core.ko: kernel/nvme/nvme-auth.ko
kernel/nvme/nvme-auth.ko:
`

func TestOrder(t *testing.T) {
	c := parseCatalogue("/m", someDeps, "kernel/fs/ext4.ko\n")
	got, err := c.order([]string{"igb", "nvme", "ext4", "nvme-core"}, []string{"crc32_generic"})
	want := []string{"kernel/i2c-algo-bit.ko.xz", "kernel/dca.ko.xz", "kernel/net/igb.ko.xz",
		"kernel/nvme/nvme-auth.ko", "kernel/nvme/nvme-core.ko", "kernel/nvme/nvme.ko"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %q\nwant %q", err, got, want)
	}
	if got, err := c.order([]string{"nosuch"}, nil); err == nil {
		t.Errorf("a module that does not exist is in the order: %q", got)
	}
}

// TestOrderWithACycle: order ends even if modules need each other in a cycle.
func TestOrderWithACycle(t *testing.T) {
	c := parseCatalogue("/m", "a.ko: a.ko b.ko\nb.ko:\n", "")
	if got, _ := c.order([]string{"a"}, nil); !reflect.DeepEqual(got, []string{"b.ko", "a.ko"}) {
		t.Errorf("%q", got)
	}
}
