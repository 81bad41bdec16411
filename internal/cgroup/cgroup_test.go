package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// tree makes files, and returns the directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		testenv.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		testenv.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600))
	}
	return dir
}

// TestLimits: the smallest limit of our group and of those above it counts, and that of others does not.
func TestLimits(t *testing.T) {
	dir := tree(t, map[string]string{
		"two/a/cpu.max": "150000 100000", "two/a/b/cpu.max": "max 100000", "two/other/cpu.max": "1000 100000",
		"two/a/b/hugetlb.2MB.max": "67108864", "two/a/b/hugetlb.2MB.current": "33554432",
		"two/a/hugetlb.2MB.rsvd.max": "max", "two/a/hugetlb.2MB.rsvd.current": "0", "two/a/b/hugetlb.1GB.max": "0",
		"one/c/cpu.cfs_quota_us": "50000", "one/c/cpu.cfs_period_us": "100000", "one/cpu.cfs_quota_us": "-1",
	})
	mounts := fmt.Sprintf(`35 25 0:30 / %[1]s/two rw,nosuid shared:9 - cgroup2 cgroup2 rw
36 25 0:31 / %[1]s/one rw - cgroup cgroup rw,cpu,cpuacct
22 1 8:1 / / rw - ext4 /dev/vda rw
broken
`, dir)
	two := parse(mounts, "0::/a/b\n")
	if len(two) != 1 || two[0].dir != dir+"/two/a/b" || len(two[0].levels()) != 3 {
		t.Fatalf("%+v", two)
	}
	if l, ok := cpus(two); !ok || l.CPUs != 1.5 || l.File != dir+"/two/a/cpu.max" {
		t.Errorf("CPUs: %+v, %v", l, ok)
	}
	if l, ok := hugePages(two, 2<<20); !ok || l.Left != 32<<20 || l.File != dir+"/two/a/b/hugetlb.2MB.max" {
		t.Errorf("huge pages of 2 MiB: %+v, %v", l, ok)
	}
	if l, ok := hugePages(two, 1<<30); !ok || l.Left != 0 {
		t.Errorf("huge pages of 1 GiB: %+v, %v", l, ok)
	}
	both := parse(mounts, "0::/a/b\n4:cpuacct,cpu:/c\nnonsense\n")
	if l, ok := cpus(both); !ok || l.CPUs != 0.5 || !strings.HasSuffix(l.File, "/one/c/cpu.cfs_quota_us") {
		t.Errorf("CPUs with both versions: %+v, %v", l, ok)
	}
}

// TestContainer: in a container the mount may begin at our group, or show only its own root.
func TestContainer(t *testing.T) {
	dir := tree(t, map[string]string{"hugetlb.2MB.max": "0", "hugetlb.2MB.current": "0"})
	for _, c := range []struct{ root, group string }{{"/", "/"}, {"/docker/x", "/docker/x"}, {"/docker/x", "/../y"}, {"/", "/gone"}} {
		all := parse(fmt.Sprintf("1 2 0:3 %s %s rw - cgroup2 c rw\n", c.root, dir), "0::"+c.group+"\n")
		if l, ok := hugePages(all, 2<<20); !ok || l.Left != 0 {
			t.Errorf("%+v: %+v, %v, of %+v", c, l, ok, all)
		}
		if _, ok := cpus(all); ok {
			t.Errorf("%+v: a quota", c)
		}
	}
}

// TestHere: what this process is in can be read.
func TestHere(t *testing.T) {
	for _, h := range own() {
		if _, err := os.Stat(h.dir); err != nil {
			t.Errorf("%+v: %v", h, err)
		}
	}
	CPUs()
	HugePages(2 << 20)
}
