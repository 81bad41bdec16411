package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
)

// reported is a daemon that a report is about, and what it must not say.
type reported struct {
	*exec.Cmd
	dir, file, socket, log string
	secrets                map[string]string // where they were planted
}

// plant makes a secret.
func (r *reported) plant(where string) string {
	secret := fmt.Sprintf("Plant%03d-9f8e7d6c5b", len(r.secrets)+100)
	r.secrets[where] = secret
	return secret
}

// startReported runs a daemon whose files, environment, log and configuration have secrets.
func startReported(t *testing.T) *reported {
	t.Helper()
	testenv.Root(t)
	dir := testenv.DiskDir(t)
	r := &reported{dir: dir, file: filepath.Join(dir, "test.yaml"), socket: filepath.Join(dir, "control.sock"), log: filepath.Join(dir, "daemon.log"), secrets: map[string]string{}}
	certificate, key := authority.New(t).Issue(t, "reported")
	pem, err := os.ReadFile(key)
	testenv.Must(t, err)
	for i, line := range strings.Split(strings.TrimSpace(string(pem)), "\n") {
		if !strings.HasPrefix(line, "-----") {
			r.secrets[fmt.Sprintf("line %d of the TLS key", i)] = line
		}
	}
	text := fmt.Sprintf("control: {socket: %s}\nregion: {size: 16MiB, pages: ordinary, extents: 0} # %s\ntls: {certificate: %s, key: %s, authority: %[3]s}\n"+
		"metrics: {listen: \"127.0.0.9:0\"}\ncluster: {resolver: static, peers: [{peer: storage-1/log, address: \"192.0.2.9:7471\"}]}\nflows:\n  - name: made\n    from: {generate: 100, rate: 100}\n    to: {discard: true}\n", r.socket, r.plant("comment of the configuration"), certificate, key)
	r.write(t, text)
	out, err := os.Create(r.log)
	testenv.Must(t, err)
	defer out.Close()
	fmt.Fprintf(out, "harmless line\nAuthorization: Bearer %s\nurl https://me:%s@192.0.2.7/ failed\nkey %s\n", r.plant("header in the log"), r.plant("URL in the log"), pem)
	r.Cmd = exec.Command(testenv.Tool(t, "unifiedd"), "run", "-c", r.file)
	r.Env = append(os.Environ(), "GOMAXPROCS=2", "STORE_PASSWORD="+r.plant("environment of the daemon"), "PLAIN="+r.plant("other environment of the daemon"))
	fmt.Fprintf(out, "connecting with %s\n", r.secrets["environment of the daemon"])
	r.Stderr = out
	testenv.Must(t, r.Start())
	t.Cleanup(func() {
		_ = r.Process.Signal(syscall.SIGCONT)
		_ = r.Process.Kill()
		_ = r.Wait()
	})
	testenv.Wait(t, 20*time.Second, "the daemon to answer", func() bool {
		return exec.Command("unifiedd", "status", "--socket", r.socket).Run() == nil
	})
	// A reload of a file with mistakes logs the lines that have them.
	r.write(t, text+"password: "+r.plant("unknown setting")+"\n")
	if err := exec.Command("unifiedd", "reload", "--socket", r.socket).Run(); err == nil {
		t.Error("a reload takes a file with a mistake")
	}
	return r
}

func (r *reported) write(t *testing.T, text string) {
	t.Helper()
	testenv.Must(t, os.WriteFile(r.file, []byte(text), 0o600))
}

// collect runs a report and returns its files. It fails the test if any has a secret, in whatever
// form.
func (r *reported) collect(t *testing.T, args ...string) (files map[string]string, said string) {
	t.Helper()
	archive := filepath.Join(r.dir, "report.tar.gz")
	cmd := exec.Command(testenv.Tool(t, "unifiedd"), append([]string{"report", "-o", archive, "-c", r.file, "--socket", r.socket, "--log", r.log}, args...)...)
	cmd.Env = append(os.Environ(), "REPORTER_API_KEY="+r.plant("environment of the report"))
	if f, err := os.OpenFile(r.log, os.O_APPEND|os.O_WRONLY, 0); err == nil {
		fmt.Fprintf(f, "and %s\n", r.secrets["environment of the report"])
		f.Close()
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("report: %v\n%s", err, out)
	}
	info, err := os.Stat(archive)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the archive: %v, %v", info.Mode(), err)
	}
	raw, err := os.ReadFile(archive)
	testenv.Must(t, err)
	files = unpackReport(t, raw)
	for name, text := range files {
		for where, secret := range r.secrets {
			for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), hex.EncodeToString([]byte(secret))} {
				if strings.Contains(text, form) || strings.Contains(name, form) {
					t.Errorf("%s has the secret of the %s: %s", name, where, form)
				}
			}
		}
		if strings.Contains(text, "PRIVATE KEY-----") {
			t.Errorf("%s has a private key", name)
		}
	}
	return files, string(out)
}

// unpackReport returns the files of an archive, without the directory in their names.
func unpackReport(t *testing.T, raw []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(raw))
	testenv.Must(t, err)
	files := make(map[string]string)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		testenv.Must(t, err)
		text, err := io.ReadAll(r)
		testenv.Must(t, err)
		if !regexp.MustCompile(`^unifiedd-report-\d{8}T\d{6}Z/[a-z0-9.-]+$`).MatchString(h.Name) {
			t.Errorf("the archive has a file %q", h.Name)
		}
		files[path.Base(h.Name)] = string(text)
	}
}

// has fails the test unless a file of the report has each text.
func has(t *testing.T, files map[string]string, name string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(files[name], text) {
			t.Errorf("%s has no %q:\n%.2000s", name, text, files[name])
		}
	}
}

// TestReport: the report of a running daemon has everything that it should, and none of the secrets
// that were planted.
func TestReport(t *testing.T) {
	r := startReported(t)
	files, said := r.collect(t)
	if strings.Contains(said, "did not answer") {
		t.Errorf("it says %s", said)
	}
	has(t, files, "contents.txt", "The daemon answered", "metrics.txt", "kernel.txt")
	has(t, files, "version.txt", "unifiedd", `"go"`)
	has(t, files, "doctor.txt", "kernel", "memory")
	has(t, files, "status.txt", "flow made", "running")
	has(t, files, "metrics.txt", `unifiedd_flow_up{flow="made"} 1`, `unifiedd_config_reloads_total`)
	has(t, files, "ready.txt", "ready")
	has(t, files, "goroutines.txt", "goroutine profile")
	has(t, files, "cluster.json", "storage-1", "192.0.2.9:7471")
	has(t, files, "config.yaml", "name: made", "/reported.key", "password: [secret]")
	has(t, files, "check.txt", "password")
	has(t, files, "process.txt", "unifiedd run -c", "GOMAXPROCS=2", "variables that are left out", "Max open files", "VmRSS", "waits in")
	has(t, files, "io-uring.txt", "open descriptors")
	has(t, files, "kernel.txt", "Linux version", "/proc/sys/vm/nr_hugepages")
	has(t, files, "memory.txt", "MemTotal", "hugepages-2048kB/nr_hugepages")
	has(t, files, "interfaces.txt", "lo", "statistics/rx_bytes")
	has(t, files, "log-1.txt", "harmless line", "Authorization: [secret]", "https://me:[secret]@192.0.2.7/", "connecting with [secret]")
	var s status.Daemon
	if err := json.Unmarshal([]byte(files["status.json"]), &s); err != nil || len(s.Flows) != 1 {
		t.Errorf("status.json: %v", err)
	}
	if s.PID == 0 || !strings.Contains(files["process.txt"], fmt.Sprintf("Pid:\t%d\n", s.PID)) {
		t.Errorf("process.txt is not about process %d", s.PID)
	}
}

// TestReportRedacts: with --redact no file has an address of this host or of the log, and the same
// address has the same number everywhere.
func TestReportRedacts(t *testing.T) {
	r := startReported(t)
	r.write(t, "metrics: {listen: \"192.0.2.7:9300\"}\n")
	plain, _ := r.collect(t)
	files, _ := r.collect(t, "--redact")
	addresses := regexp.MustCompile(`(?m)link/ether ([0-9a-f:]{17})|inet6? ([0-9a-f.:]+)/`)
	found := map[string]bool{"192.0.2.7": true, "192.0.2.9": true}
	for _, m := range addresses.FindAllStringSubmatch(plain["interfaces.txt"], -1) {
		found[m[1]+m[2]] = true
	}
	host, err := os.Hostname()
	testenv.Must(t, err)
	for address := range found {
		if strings.HasPrefix(address, "127.") || address == "::1" {
			continue
		}
		for name, text := range files {
			if regexp.MustCompile(`(^|[^0-9a-f:.])` + regexp.QuoteMeta(address) + `($|[^0-9a-f:])`).MatchString(text) {
				t.Errorf("%s has the address %s", name, address)
			}
		}
	}
	for name, text := range files {
		if len(host) > 2 && regexp.MustCompile(`\b`+regexp.QuoteMeta(host)+`\b`).MatchString(text) {
			t.Errorf("%s has the name of the host", name)
		}
	}
	in := regexp.MustCompile(`listen: "?(ip4-\d+):9300`).FindStringSubmatch(files["config.yaml"])
	if in == nil {
		t.Fatalf("the configuration has no address that was replaced:\n%s", files["config.yaml"])
	}
	has(t, files, "log-1.txt", "https://me:[secret]@"+in[1]+"/")
	has(t, files, "contents.txt", "Addresses and the host's name are replaced.")
	if !json.Valid([]byte(files["status.json"])) {
		t.Error("status.json is no JSON any more")
	}
}

// TestReportWithoutDaemon: the report of a daemon that is down says so and has the rest; keys of NVMe
// hosts are not in it.
func TestReportWithoutDaemon(t *testing.T) {
	dir := testenv.DiskDir(t)
	r := &reported{dir: dir, file: filepath.Join(dir, "test.yaml"), socket: filepath.Join(dir, "missing.sock"), log: filepath.Join(dir, "log"), secrets: map[string]string{}}
	keys := filepath.Join(dir, "hosts.keys")
	testenv.Must(t, os.WriteFile(keys, []byte("nqn.2014-08.org.example:host "+r.plant("keys of hosts")+"\n"), 0o600))
	testenv.Must(t, os.WriteFile(r.log, []byte("last words, with "+r.secrets["keys of hosts"]+"\n"), 0o600))
	r.write(t, "flows:\n  - name: served\n    from: {file: /nowhere}\n    to: {rdma: \"roce:eth9\", listen: \":4420\", subsystem: nqn.2014-08.org.example:s, keys: "+keys+", pass: "+r.plant("unknown setting")+"}\n")
	files, said := r.collect(t)
	if !strings.Contains(said, "did not answer") || !strings.Contains(said, "missing.sock") {
		t.Errorf("it says %s", said)
	}
	has(t, files, "contents.txt", "The daemon did not answer on "+r.socket, "status.json", "not complete: the daemon did not answer")
	has(t, files, "config.yaml", "nqn.2014-08.org.example:s", "keys: "+keys, "pass: '[secret]'")
	has(t, files, "log-1.txt", "last words, with [secret]")
	has(t, files, "kernel.txt", "Linux version")
	if _, ok := files["process.txt"]; ok {
		t.Error("there is a process of a daemon that is down")
	}
}

// TestReportOfHangingDaemon: a daemon that accepts no request still has a process that the report describes.
func TestReportOfHangingDaemon(t *testing.T) {
	testenv.Long(t, "a daemon that hangs is waited for")
	r := startReported(t)
	testenv.Must(t, stopTree(r.Process.Pid, syscall.SIGSTOP))
	files, said := r.collect(t)
	testenv.Must(t, stopTree(r.Process.Pid, syscall.SIGCONT))
	if !strings.Contains(said, "did not answer") {
		t.Errorf("it says %s", said)
	}
	has(t, files, "process.txt", "unifiedd run -c", "State:\tT (stopped)")
}

// stopTree sends a signal to a process and to those that it started.
func stopTree(pid int, signal syscall.Signal) error {
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, name := range all {
		text, _ := os.ReadFile(name)
		for _, child := range strings.Fields(string(text)) {
			var n int
			if _, err := fmt.Sscan(child, &n); err == nil {
				_ = syscall.Kill(n, signal)
			}
		}
	}
	return errors.Join(err, syscall.Kill(pid, signal))
}

// TestReportNamesWrongFiles: files that do not exist are named before anything is collected.
func TestReportNamesWrongFiles(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, flag := range []string{"-c", "--log"} {
		var errs sink
		if code := run([]string{"report", flag, missing, "-o", missing + ".tar.gz"}, io.Discard, &errs); code != exitFailed || !strings.Contains(string(errs), missing) {
			t.Errorf("%s: status %d, %s", flag, code, errs)
		}
	}
	if _, err := os.Stat(missing + ".tar.gz"); err == nil {
		t.Error("an archive was made")
	}
}
