package main

import (
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestOddDisks: the self-test refuses disks that are too small or fail each write, and passes on
// disks with large blocks. A load in blocks smaller than the disk's is refused. All of this holds
// for the block device and for the node.
func TestOddDisks(t *testing.T) {
	labenv.Guest(t)
	testenv.Leaks(t)
	odd := labenv.OddDisks(t)
	for _, c := range []struct {
		disk   labenv.Namespace
		args   string
		status int
		says   string
	}{
		{odd.Small, "", 1, "has 3145728 bytes: the self-test needs 4194304"},
		{odd.Blocks, "", 0, "offset and length 4096 bytes"},
		{odd.Blocks, "-rw randwrite -bs 4k -size 1m -verify ", 0, ""},
		{odd.Blocks, "-rw write -bs 512 -size 1m -runtime 0 ", 1, "4096"},
		{odd.Failing, "", 1, "FAIL  write"},
	} {
		for _, path := range []string{c.disk.Disk, c.disk.Node} {
			begin := time.Now()
			status, out, errs := program(t, append(strings.Fields(c.args), "-force", path)...)
			if took := time.Since(begin); took > stepLimit {
				t.Errorf("%s%s: it took %v, so a step waited in vain\n%s", c.args, path, took, out)
			}
			if status != c.status || !strings.Contains(out+errs, c.says) {
				t.Errorf("%s%s: status %d, and not %d with %q\n%s%s", c.args, path, status, c.status, c.says, out, errs)
			}
		}
	}
}
