package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
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

// TestVerifyOnDisk: blocks written as block device or node read back correctly as either, in every
// way of submitting.
func TestVerifyOnDisk(t *testing.T) {
	labenv.Guest(t)
	for i, d := range disks {
		other := disks[1-i].path
		for _, more := range []string{"", " -sqthread_poll", " -gather"} {
			r := loadOnDisk(t, d.path, "-rw randwrite -bs 16k -iodepth 16 -size 2m -verify"+more)
			if g := r.Granted; g.Node != (d.path == labenv.DiskPassthrough) || g.Block == g.Node || g.Submitter != (more == " -sqthread_poll") {
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

// TestPolledDisk: the program polls if the driver has queues for it, and refuses otherwise.
func TestPolledDisk(t *testing.T) {
	labenv.Guest(t)
	for _, d := range disks {
		status, _, errs := program(t, "-rw", "randread", "-hipri", d.path)
		if status != 1 || !strings.Contains(errs, "-hipri: ") || !strings.Contains(errs, "poll_queues=1") {
			t.Errorf("%s without queues for it: status %d, %s", d.name, status, errs)
		}
	}
	reloadDriver(t, "poll_queues=1")
	t.Cleanup(func() { reloadDriver(t, "poll_queues=0") })
	for _, d := range disks {
		r := loadOnDisk(t, d.path, "-rw randwrite -iodepth 8 -size 256k -verify -hipri")
		if !r.Granted.Poll || *r.Verified == 0 || r.Errors != 0 {
			t.Errorf("%s: %+v", d.name, r)
		}
	}
}

// reloadDriver loads the disk's driver again, and waits for the disk.
func reloadDriver(t *testing.T, option string) {
	t.Helper()
	for _, args := range [][]string{{"-r", "nvme"}, {"nvme", option}} {
		if out, err := exec.Command("modprobe", args...).CombinedOutput(); err != nil {
			t.Fatalf("modprobe %v: %v: %s", args, err, out)
		}
	}
	testenv.Wait(t, 10*time.Second, "the disk", func() bool {
		for _, d := range disks {
			target, err := nvme.OpenTarget(nvme.TargetConfig{Path: d.path, ReadOnly: true})
			if err != nil {
				return false
			}
			if err := target.Close(); err != nil {
				t.Error(err)
			}
		}
		return true
	})
}
