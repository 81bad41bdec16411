package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// disks has the lab's NVMe disk, as block device and as node.
var disks = []struct{ name, path string }{{"block device", labenv.Disk}, {"node", labenv.DiskPassthrough}}

// TestSelfTestOnDisk: the self-test passes on an NVMe disk, as block device and as node.
func TestSelfTestOnDisk(t *testing.T) {
	labenv.Guest(t)
	for _, d := range disks {
		t.Run(d.name, func(t *testing.T) {
			testenv.Leaks(t)
			status, out, errs := program(t, "-force", d.path)
			if status != 0 || errs != "" || strings.Count(out, "PASS  ") != 14 {
				t.Errorf("status %d, %q\n%s", status, errs, out)
			}
		})
	}
}

// loadOnDisk runs the program with -json on a disk, and overwrites it.
func loadOnDisk(t *testing.T, path, args string) result {
	t.Helper()
	status, out, errs := program(t, append(strings.Fields(args), "-force", "-json", path)...)
	var r result
	if err := json.Unmarshal([]byte(out), &r); status != 0 || err != nil {
		t.Fatalf("%s: status %d, %v, %s", args, status, err, errs)
	}
	return r
}

// TestVerifyOnDisk: blocks written as block device or node read back correctly as either, single
// and gathered.
func TestVerifyOnDisk(t *testing.T) {
	labenv.Guest(t)
	for i, d := range disks {
		other := disks[1-i].path
		for _, more := range []string{"", " -gather"} {
			r := loadOnDisk(t, d.path, "-rw randwrite -bs 16k -iodepth 16 -size 2m -verify"+more)
			if g := r.Granted; g.Node != (d.path == labenv.DiskPassthrough) || g.Block == g.Node {
				t.Errorf("%s%s: %+v", d.name, more, g)
			}
			if r.Verified == nil || *r.Verified == 0 || r.Copied+r.Errors != 0 {
				t.Errorf("%s%s: %+v", d.name, more, r)
			}
			loadOnDisk(t, d.path, "-rw write -bs 16k -iodepth 4 -size 1m -verify"+more)
			if r := loadOnDisk(t, other, "-rw randread -bs 16k -size 1m -runtime 0 -verify"+more); *r.Verified != 64 {
				t.Errorf("of 64 blocks the other way found %d", *r.Verified)
			}
		}
	}
}
