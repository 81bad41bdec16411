package bugreport

import (
	"strings"
	"testing"
)

// TestBootLine: of the kernel's command line the parameters stay that flows depend on, and no value that may be secret.
func TestBootLine(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro quiet isolcpus=2-5 hugepages=64 intel_iommu=on", "BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro quiet isolcpus=2-5 hugepages=64 intel_iommu=on"},
		{"rd.iscsi.initiator=x netroot=iscsi:user:pw1@10.0.0.1::::iqn nvme_core.multipath=N", "rd.iscsi.initiator=[secret] netroot=[secret] nvme_core.multipath=N"},
		{`systemd.set_credential=agent:hunter2 ds="nocloud;s=http://h/?t=hunter2 x" rd.luks.uuid=1`, "systemd.set_credential=[secret] ds=[secret] rd.luks.uuid=[secret]"},
		{"root=nfs:10.0.0.1:/x,sec=hunter2 user:hunter2@host nosmt", "root=[secret] [secret] nosmt"},
		{"quiet -- --key hunter2", "quiet -- [secret]"},
		{`quiet dyndbg="file x +p`, `quiet dyndbg=[secret]`},
		{"", ""},
	} {
		if got := maskParameters(c.line); got != c.want {
			t.Errorf("%q\nbecomes %q\nwant    %q", c.line, got, c.want)
		}
	}
}

// TestKernelLog: the kernel's log has its command line, and audit's records have those of programs.
func TestKernelLog(t *testing.T) {
	const log = `<5>[    0.000000] Linux version 6.18.0
<6>[    0.000000] Command line: quiet rd.luks.key=hunter2
<5>[    0.021000] Kernel command line: quiet rd.luks.key=hunter2
<5>[    0.022000] Unknown kernel command line parameters "ds=hunter2 quiet", will be passed to user space.
<5>[    9.000000] audit: type=1309 audit(1700000000.1:2): argc=2 a0="mysql" a1="-phunter2"
<6>[    9.100000] mlx5_core 0000:00:01.0: link up
end`
	got := string(maskKernelLog([]byte(log)))
	if strings.Contains(got, "hunter2") || strings.Count(got, "\n") != strings.Count(log, "\n") {
		t.Errorf("it becomes\n%s", got)
	}
	for _, line := range []string{"<5>[    0.000000] Linux version 6.18.0\n", "Command line: quiet rd.luks.key=[secret]\n", "audit: type= [secret]\n", "link up\nend"} {
		if !strings.Contains(got, line) {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
}
