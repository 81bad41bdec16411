package labenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// nvmet is the directory that configures the kernel's NVMe target: Documentation/nvme/nvmet.rst,
// drivers/nvme/target/configfs.c.
const nvmet = "/sys/kernel/config/nvmet"

// ServeNVMe serves a disk to all hosts by the kernel's NVMe target over RDMA, as namespace 1 of a
// subsystem, until the end of the test. The address is that of an RDMA device; service is the port
// there, by convention from 4420.
func ServeNVMe(t testing.TB, disk, nqn, address, service string) {
	t.Helper()
	Modules(t, "nvmet", "nvmet_rdma")
	if _, err := os.Stat(nvmet); err != nil {
		must(t, "mount", "-t", "configfs", "configfs", "/sys/kernel/config")
	}
	subsystem, port := filepath.Join(nvmet, "subsystems", nqn), filepath.Join(nvmet, "ports", service)
	namespace := filepath.Join(subsystem, "namespaces", "1")
	for _, dir := range []string{subsystem, namespace, port} {
		testenv.Must(t, os.Mkdir(dir, 0o755))
		removeLater(t, dir)
	}
	for _, set := range [][2]string{
		{subsystem + "/attr_allow_any_host", "1"}, {namespace + "/device_path", disk}, {namespace + "/enable", "1"},
		{port + "/addr_trtype", "rdma"}, {port + "/addr_adrfam", "ipv4"}, {port + "/addr_traddr", address}, {port + "/addr_trsvcid", service},
	} {
		testenv.Must(t, os.WriteFile(set[0], []byte(set[1]), 0))
	}
	link := filepath.Join(port, "subsystems", nqn)
	testenv.Must(t, os.Symlink(subsystem, link))
	removeLater(t, link)
}

// removeLater removes a file or a directory at the end of the test.
func removeLater(t testing.TB, path string) {
	t.Cleanup(func() {
		testenv.Check(t, os.Remove(path))
	})
}

// ConnectNVMe connects the kernel's NVMe initiator over RDMA until the end of the test, and returns
// the path of the block device that appears. host is the UUID of the host; its NQN is made of it.
func ConnectNVMe(t testing.TB, nqn, address, service, host string) (path string) {
	t.Helper()
	Modules(t, "nvme_rdma")
	must(t, "nvme", "connect", "-t", "rdma", "-a", address, "-s", service, "-n", nqn, "--hostid", host, "--hostnqn", "nqn.2014-08.org.nvmexpress:uuid:"+host)
	t.Cleanup(func() { must(t, "nvme", "disconnect", "-n", nqn) })
	testenv.Wait(t, testenv.Within(30*time.Second), "the namespace of "+nqn, func() bool {
		all, _ := filepath.Glob("/sys/block/nvme*n*/device/subsysnqn")
		for _, file := range all {
			text, _ := os.ReadFile(file)
			path = "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(file)))
			if _, err := os.Stat(path); strings.TrimSpace(string(text)) == nqn && err == nil {
				return true
			}
		}
		return false
	})
	return path
}

// must runs a program that must succeed.
func must(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(testenv.Tool(t, name), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
