package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestUserNamespace: root of a user namespace that has no user unifiedd captures as itself, also if /etc/passwd has that
// user. If it asks for that user, the error names the remedy.
func TestUserNamespace(t *testing.T) {
	testenv.Root(t)
	dir := roomy(t)
	for _, file := range []string{"passwd", "group"} {
		text, err := os.ReadFile("/etc/" + file)
		testenv.Must(t, err, os.WriteFile(filepath.Join(dir, file), append(text, "\nunifiedd:x:990:990::/nonexistent:/usr/sbin/nologin\n"...), 0o644))
	}
	run := func(options string) (string, error) {
		script := `mount --bind ` + dir + `/passwd /etc/passwd && ip link set lo up || exit 9
(while :; do echo >/dev/udp/127.0.0.1/9; sleep 0.05; done) 2>/dev/null &
` + program(t) + ` capture -i lo -q -c 4 ` + options + ` -w ` + dir + `/out.pcapng; s=$?; kill %1; exit $s`
		out, err := exec.Command("unshare", "--user", "--map-root-user", "--net", "--mount", "bash", "-c", script).CombinedOutput()
		return string(out), err
	}
	if out, err := run(""); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if info, err := os.Stat(filepath.Join(dir, "out.pcapng")); err != nil || info.Size() == 0 {
		t.Errorf("%v: %v", info, err)
	}
	out, err := run("-Z unifiedd")
	if err == nil || !strings.Contains(out, "become user 990") || !strings.Contains(out, "-Z 0") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestConfigFromPipe: a daemon whose configuration comes from a pipe runs, also as another user than root, and a reload
// changes nothing.
func TestConfigFromPipe(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	for _, user := range []string{"", "user: nobody\n"} {
		p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
		dir := testenv.DiskDir(t)
		reach(t, dir)
		r := &comeback{Pair: p, dir: dir, log: newSafeBuffer(t)}
		text := user + "region: {size: 64MiB, pages: ordinary}\ncontrol: {socket: " + r.socket() + "}\ntrace: {events: 0}\nflows: [{name: idle, from: {generate: 64, rate: 100}, to: {discard: true}}]\n"
		cmd := commandAsIs(t, &p.B, nil, "run", "-c", "/dev/stdin")
		cmd.Stdin = bytes.NewReader([]byte(text)) // exec.Cmd makes a pipe
		cmd.Stderr = r.log.file
		r.watch(t, cmd)
		r.flow(t, "idle", "to run", up)
		if raw, err := control.Reload(t.Context(), r.socket()); err != nil || !strings.Contains(string(raw), string(status.Unchanged)) {
			t.Errorf("%s: %v", raw, err)
		}
		r.flow(t, "idle", "to run", up)
	}
}

// TestOpenSecret: check warns of a login at an exchange that every user can read.
func TestOpenSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "test.yaml")
	c := &config.Config{Flows: []config.Flow{{Name: "o", To: config.To{Order: &config.Order{Login: &config.Login{}}}}}}
	for mode, warns := range map[os.FileMode]bool{0o644: true, 0o640: false} {
		testenv.Must(t, os.WriteFile(file, nil, 0o600), os.Chmod(file, mode))
		if why := openSecret(c, file); (why != "") != warns {
			t.Errorf("%v: %q", mode, why)
		}
	}
	if why := openSecret(&config.Config{Flows: []config.Flow{{Name: "o"}}}, file); why != "" {
		t.Error(why)
	}
}
