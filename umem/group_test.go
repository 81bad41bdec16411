package umem

import (
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/cgroup"
)

// TestCheckLimit: a region that the control group may not have is refused before it is touched, with the file of the
// limit.
func TestCheckLimit(t *testing.T) {
	c := Config{Size: 64 << 20, Control: 2 << 20}
	for _, one := range []struct {
		left    uint64
		limited bool
		pages   PageSize
		refused bool
	}{
		{0, false, Huge2M, false}, {66 << 20, true, Huge2M, false}, {65 << 20, true, Huge2M, true}, {0, true, Huge2M, true}, {0, true, Ordinary, false},
	} {
		c.Pages = one.pages
		err := c.checkLimit(func(uint64) (cgroup.Limit, bool) {
			return cgroup.Limit{File: "/sys/fs/cgroup/hugetlb.2MB.max", Left: one.left}, one.limited
		})
		if (err != nil) != one.refused || err != nil && !strings.Contains(err.Error(), "raise the limit in /sys/fs/cgroup/hugetlb.2MB.max") {
			t.Errorf("%+v: %v", one, err)
		}
	}
}
