package bugreport

import (
	"bytes"
	"regexp"
	"strings"
)

// The kernel's command line has what the boot loader, the installer and programs of the start were given, with their
// passwords and addresses with keys in them. A report has the values of the parameters that flows depend on.
var (
	plainParameters = regexp.MustCompile(`^(?:BOOT_IMAGE|console|quiet|splash|ro|rw|debug|nomodeset|reboot|panic|rootfstype|loglevel|` +
		`(?:default_)?hugepagesz|hugepages|hugepage_.*|transparent_hugepage|isolcpus|nohz|nohz_full|rcu_.*|rcutree\..*|rcupdate\..*|irqaffinity|kthread_cpus|managed_irq|` +
		`(?:intel_|amd_)?iommu(?:\..*)?|intremap|mitigations|nospectre.*|spec_.*|nopti|pti|numa|numa_balancing|mem|memmap|maxcpus|nr_cpus|nosmt|nmi_watchdog|nowatchdog|nosoftlockup|` +
		`clocksource|tsc|skew_tick|preempt|threadirqs|idle|processor\..*|intel_idle\..*|intel_pstate|amd_pstate|cpuidle.*|cpufreq.*|haltpoll.*|pcie?_.*|pcie?|swiotlb|` +
		`nvme\..*|nvme_core\..*|mlx[45]_core\..*|ib_.*|rdma_.*|xdp.*|bpf.*|lockdown|lsm|selinux|apparmor|audit|cgroup_.*|psi|systemd\.unified_cgroup_hierarchy)$`)
	rootDevice = regexp.MustCompile(`^(?:root|resume)=(?:/dev/|UUID=|PARTUUID=|LABEL=)[A-Za-z0-9/._-]+$`)
	bareWord   = regexp.MustCompile(`^[a-z][a-z0-9_.]*$`)
)

// maskParameters returns a command line of the kernel without values that may be secret. What is behind -- goes to the first
// process, and is left out.
func maskParameters(line string) string {
	var out []string
	for _, p := range parameters(line) {
		name, _, hasValue := strings.Cut(p, "=")
		switch {
		case p == "--":
			return strings.Join(append(out, p, mark), " ")
		case plainParameters.MatchString(name), rootDevice.MatchString(p), !hasValue && bareWord.MatchString(p):
			out = append(out, p)
		case !hasValue:
			out = append(out, mark)
		default:
			out = append(out, name+"="+mark)
		}
	}
	return strings.Join(out, " ")
}

// parameters splits a command line. Blanks in quotes belong to a parameter.
func parameters(line string) (all []string) {
	quoted, begun := false, -1
	for i, c := range line {
		switch {
		case (c == ' ' || c == '\t') && !quoted:
			if begun >= 0 {
				all = append(all, line[begun:i])
			}
			begun = -1
			continue
		case c == '"':
			quoted = !quoted
		}
		if begun < 0 {
			begun = i
		}
	}
	if begun >= 0 {
		all = append(all, line[begun:])
	}
	return all
}

// Lines of the kernel's log that have command lines: its own, and those of programs in records of audit.
var (
	bootLine    = regexp.MustCompile(`^(.*?(?:[Cc]ommand line:|[Uu]nknown kernel command line parameters) ?)(.*)$`)
	auditRecord = regexp.MustCompile(`\baudit(?:\(|: type=)`)
)

// maskKernelLog returns lines of the kernel's log without the secrets of command lines.
func maskKernelLog(text []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		line, end := bytes.CutSuffix(line, []byte("\n"))
		if m := bootLine.FindSubmatch(line); m != nil {
			line = append(append([]byte{}, m[1]...), maskParameters(string(m[2]))...)
		} else if at := auditRecord.FindIndex(line); at != nil {
			line = append(append([]byte{}, line[:at[1]]...), " "+mark...)
		}
		out.Write(line)
		if end {
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}
