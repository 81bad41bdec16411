package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// uses are the flows of the table in docs/how-to/containers.md, by the words there.
var uses = map[string]string{
	"a capture with `engine: packet`": "from: {interface: card, engine: packet}\n    to: {file: /var/lib/unifiedd/flow, segment: {size: 2MiB}, prepare: none}",
	"a capture with AF_XDP":           "from: {interface: card, ring: 64}\n    to: {file: /var/lib/unifiedd/flow, segment: {size: 2MiB}, prepare: none}",
	"a flow over RoCE in software":    "from: {rdma: \"roce:wire\", listen: \"10.79.0.1:7471\", clients: 2, window: 8}\n    to: {file: /var/lib/unifiedd/flow, segment: {size: 2MiB}}",
	"a capture with `to.owner`":       "from: {interface: card, engine: packet}\n    to: {file: /var/lib/unifiedd/flow, segment: {size: 2MiB}, prepare: none, owner: unifiedd}",
}

// host is a machine with podman: a directory with everything of its own, in this process's namespaces.
type host struct {
	*testing.T
	dir    string
	before []string // the command's words before the shell: which user it is
	env    []string
	text   string // of docs/how-to/containers.md
}

// TestContainers: the commands of docs/how-to/containers.md work as they stand there, and each use works with its capabilities and no
// others, under the profile of system calls. make test-long SUITE=containers runs it in namespaces of its own.
func TestContainers(t *testing.T) {
	if os.Getenv("UNIFIEDD_CONTAINERS") == "" {
		t.Skip("short: make test-long SUITE=containers runs podman")
	}
	text, err := os.ReadFile("../../docs/how-to/containers.md")
	if err != nil {
		t.Fatal(err)
	}
	image := os.Getenv("UNIFIEDD_IMAGE")
	if image == "" {
		image, _ = makeImage(t, imageStatic)
	}
	for _, line := range append(wires, "umount -l /sys/fs/cgroup", "mount -t cgroup2 cgroup2 /sys/fs/cgroup") { // as on machines of today
		output(t, "sh", "-ec", line)
	}
	h := newHost(t, image, string(text))
	rows := regexp.MustCompile("(?m)^\\| (a [^|]+) \\| ((?:`[A-Z_]+`(?:, )?)+) \\|$").FindAllStringSubmatch(h.text, -1)
	if len(rows) != len(uses) {
		t.Fatalf("the document has %d uses, and the test %d", len(rows), len(uses))
	}
	for _, row := range rows {
		capabilities := strings.Split(strings.ReplaceAll(row[2], "`", ""), ", ")
		h.use(row[1], capabilities)
	}
	h.lacks()
	h.rootless(image)
}

// newHost makes a host, and gives it the image by the command of the document.
func newHost(t *testing.T, image, text string) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "containers")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{T: t, dir: dir, text: strings.ReplaceAll(text, "VERSION", "1.2.3-"+runtime.GOARCH)}
	t.Cleanup(func() {
		_, _ = h.try("podman rm --force --all; podman unshare rm -rf root/overlay root/vfs")
		_ = exec.Command("umount", "-l", filepath.Join(dir, "root", "overlay")).Run() // podman's own mount
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	for _, sub := range []string{"bin", "build", "packaging", "etc", "lib", "home", "run"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	output(t, "cp", "-r", image, filepath.Join(dir, "build", "image"))
	output(t, "cp", "../seccomp.json", filepath.Join(dir, "packaging"))
	h.write("bin/podman", "#!/bin/sh\nexec /usr/bin/podman --root "+dir+"/root --runroot "+dir+"/run/c --cgroup-manager cgroupfs \"$@\"\n", 0o755)
	h.write("containers.conf", h.settings(), 0o644)
	h.env = []string{"PATH=" + dir + "/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + dir + "/home", "XDG_RUNTIME_DIR=" + dir + "/run", "CONTAINERS_CONF=" + dir + "/containers.conf"}
	return h
}

// settings are podman's defaults on this machine. One that may not raise limits (CAP_SYS_RESOURCE) can make no control groups for
// devices either.
func (h *host) settings() string {
	var files, processes syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		h.Fatal(err)
	}
	if err := syscall.Getrlimit(6, &processes); err != nil { // RLIMIT_NPROC
		h.Fatal(err)
	}
	text := fmt.Sprintf("[containers]\ndefault_ulimits = [\"nofile=%d:%[1]d\", \"nproc=%d:%[2]d\"]\n", files.Max, processes.Max)
	if exec.Command("prlimit", "--memlock=unlimited:unlimited", "true").Run() != nil {
		h.Log("this machine permits no limits: containers have no control groups of their own")
		text += "cgroups = \"disabled\"\n"
	}
	return text
}

func (h *host) write(name, text string, mode os.FileMode) {
	h.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), mode); err != nil {
		h.Fatal(err)
	}
}

// try runs a shell's command on the host.
func (h *host) try(command string) (string, error) {
	args := append(append([]string{}, h.before...), "sh", "-ec", command)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = h.dir, h.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// do is try for a command that must work.
func (h *host) do(command string) string {
	h.Helper()
	out, err := h.try(command)
	if err != nil {
		h.Fatalf("%s: %v\n%s", command, err, out)
	}
	return out
}

// command returns the command of the document that begins with these words. Its volumes are directories of this host.
func (h *host) command(words string) string {
	h.Helper()
	found := regexp.MustCompile(`(?m)^\$ (` + regexp.QuoteMeta(words) + `(?:.*\\\n)*.*)$`).FindStringSubmatch(h.text)
	if found == nil {
		h.Fatalf("docs/how-to/containers.md has no command %s", words)
	}
	return strings.NewReplacer("--volume /etc/unifiedd:", "--volume "+h.dir+"/etc:", "--volume /var/lib/unifiedd:", "--volume "+h.dir+"/lib:").Replace(found[1])
}

// configure writes a configuration with one flow.
func (h *host) configure(flow string) {
	h.Helper()
	h.write("etc/unifiedd.yaml", "region: {size: 16MiB, extent: 512KiB, extents: 4, pages: ordinary}\nflows:\n  - name: flow\n    "+flow+"\n", 0o644)
}

// capabilities matches those of the document's command.
var capabilities = regexp.MustCompile(`--cap-add [A-Z_,]+`)

// use runs the daemon with the flow of a use and these capabilities, until the flow has run and recorded packets.
func (h *host) use(name string, caps []string) {
	h.Helper()
	h.Logf("%s: %v", name, caps)
	if _, err := h.try("podman image exists unifiedd:1.2.3-" + runtime.GOARCH); err != nil {
		h.do(h.command("podman tag"))
	}
	flow := uses[name]
	if flow == "" {
		h.Fatalf("the test has no flow for %q", name)
	}
	h.configure(flow)
	h.do(capabilities.ReplaceAllString(h.command("podman run --detach"), "--cap-add "+strings.Join(caps, ",")))
	h.runs(strings.Contains(flow, "card"))
}

// flowState matches the flow's line in the status.
var flowState = regexp.MustCompile(`(?m)^flow +(\w+)`)

// runs waits until the container's flow runs, and has recorded packets if it captures. Then it stops and removes the container.
func (h *host) runs(captures bool) {
	h.Helper()
	for state := ""; state != "running" || captures && h.asked() == 0; time.Sleep(50 * time.Millisecond) {
		status, err := h.try(h.command("podman exec"))
		if found := flowState.FindStringSubmatch(status); found != nil {
			state = found[1]
		}
		up, _ := h.try("podman inspect --format '{{.State.Running}}' unifiedd")
		if strings.TrimSpace(up) != "true" || state == "failed" {
			h.Fatalf("the flow does not run (%v)\n%s\n%s", err, status, h.do("podman logs unifiedd"))
		}
		_ = exec.Command("ping", "-c", "1", "-W", "1", "10.79.0.9").Run() // nobody answers
	}
	h.confined()
	h.do(h.command("podman stop"))
	if code := strings.TrimSpace(h.do("podman inspect --format '{{.State.ExitCode}}' unifiedd")); code != "0" {
		h.Errorf("the daemon ended with %s\n%s", code, h.do("podman logs unifiedd"))
	}
	h.do("podman rm unifiedd; rm -rf lib/*")
}

// confined checks, in the guest whose kernel has AppArmor, that the container of root has podman's profile.
func (h *host) confined() {
	h.Helper()
	if h.before != nil || os.Getenv("UNIFIEDD_APPARMOR") == "" {
		return
	}
	pid := strings.TrimSpace(h.do("podman inspect --format '{{.State.Pid}}' unifiedd"))
	profile, err := os.ReadFile("/proc/" + pid + "/attr/current")
	if err != nil || !strings.HasPrefix(string(profile), "containers-default-") || !strings.HasSuffix(string(profile), " (enforce)\n") {
		h.Errorf("the profile of AppArmor is %s (%v)", profile, err)
	}
}

// asked counts the requests by ARP in what was recorded.
func (h *host) asked() (n int) {
	names, _ := filepath.Glob(filepath.Join(h.dir, "lib", "flow-*"))
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil {
			n += strings.Count(string(text), string([]byte{10, 79, 0, 9}))
		}
	}
	return n
}

// lacks checks that the doctor, by the command of the document, names a capability that a container lacks, and that the daemon
// does not run without it.
func (h *host) lacks() {
	h.Helper()
	h.configure(uses["a capture with AF_XDP"])
	start := strings.NewReplacer("--detach --name unifiedd", "--rm", "NET_ADMIN,", "").Replace(h.command("podman run --detach"))
	doctor := strings.ReplaceAll(h.command("podman run ..."), "podman run ... unifiedd:1.2.3-"+runtime.GOARCH, start)
	if said, err := h.try(doctor); err == nil || !strings.Contains(said, "run the container with --cap-add NET_ADMIN") {
		h.Errorf("without NET_ADMIN the doctor says (%v):\n%s", err, said)
	}
	if said, err := h.try(start); err == nil {
		h.Errorf("the daemon runs without NET_ADMIN:\n%s", said)
	}
}

// rootless captures in a container of a user who is not root, in a network of its own.
func (h *host) rootless(image string) {
	h.Helper()
	for _, one := range []struct{ file, line string }{
		{"passwd", "ufdtest:x:64123:64123::/nonexistent:/usr/sbin/nologin\n"}, {"group", "ufdtest:x:64123:\n"}, {"subuid", "ufdtest:6500000:65536\n"}, {"subgid", "ufdtest:6500000:65536\n"},
	} { // in this process's mounts only
		text, err := os.ReadFile("/etc/" + one.file)
		if err != nil && !os.IsNotExist(err) {
			h.Fatal(err)
		}
		h.write(one.file, string(text)+one.line, 0o644)
		output(h.T, "mount", "--bind", filepath.Join(h.dir, one.file), "/etc/"+one.file)
		h.Cleanup(func() { _ = exec.Command("umount", "/etc/"+one.file).Run() })
	}
	r := newHost(h.T, image, "")
	r.text = h.text
	output(h.T, "chown", "-R", "64123:64123", r.dir)
	r.before = []string{"setpriv", "--reuid", "64123", "--regid", "64123", "--init-groups", "--inh-caps=-all"}
	r.do(r.command("podman tag"))
	r.write("etc/unifiedd.yaml", "region: {size: 4MiB, extent: 256KiB, extents: 4, pages: ordinary}\nflows:\n  - name: flow\n    from: {interface: lo, engine: packet}\n    to: {file: /var/lib/unifiedd/flow, segment: {size: 2MiB}, prepare: none}\n", 0o644)
	r.do(capabilities.ReplaceAllString(strings.Replace(r.command("podman run --detach"), "--network host", "--network none", 1), "--cap-add NET_RAW,IPC_LOCK"))
	r.runs(false)
}
