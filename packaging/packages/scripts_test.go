package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUpdateScripts: an update restarts a daemon that runs only if the new program accepts its configuration, and says so
// otherwise. The test has its own /run, and programs in place of those of systemd, which does not run here.
func TestUpdateScripts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it mounts its own /run, which takes root")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"systemctl":          `case "$*" in *is-active*) exit $ACTIVE;; esac; echo "systemctl $*" >>$CALLS`,
		"deb-systemd-invoke": `echo "deb-systemd-invoke $*" >>$CALLS`, "deb-systemd-helper": "exit 1", "systemd-sysusers": "", "systemd-tmpfiles": "",
		"unifiedd": "echo refused >&2; exit $REFUSES", "stat": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ script, arguments string }{{"deb.postinst", "configure 1.2.2"}, {"rpm.postrm", "1"}} {
		for _, state := range []struct {
			active, refuses string
			restarts        bool
		}{{"0", "0", true}, {"0", "1", false}, {"3", "1", true}} {
			calls := filepath.Join(t.TempDir(), "calls")
			cmd := exec.Command("unshare", "--mount", "sh", "-c", "mount -t tmpfs run /run && mkdir -p /run/systemd/system && exec sh scripts/"+c.script+" "+c.arguments)
			cmd.Env = []string{"PATH=" + dir + ":/usr/sbin:/usr/bin:/sbin:/bin", "CALLS=" + calls, "ACTIVE=" + state.active, "REFUSES=" + state.refuses}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v: %s", c.script, err, out)
			}
			called, err := os.ReadFile(calls)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(string(called), "try-restart unifiedd.service"); got != state.restarts || !state.restarts != strings.Contains(string(out), "still runs the old program") {
				t.Errorf("%s, %+v: it called %q and said %q", c.script, state, called, out)
			}
		}
	}
}

// TestModes: what may have secrets is for the daemon's user alone, as systemd-tmpfiles, the unit and the packages say. The
// user stays when the package is purged.
func TestModes(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if unit, made := read("../unifiedd.service"), read("../unifiedd.tmpfiles"); !strings.Contains(unit, "\nStateDirectoryMode=0750\n") || !strings.Contains(made, "/var/lib/unifiedd 0750 ") {
		t.Error("the unit and systemd-tmpfiles give the state directory other modes")
	}
	if strings.Contains(read("scripts/deb.postrm"), "userdel") {
		t.Error("purging removes the user, whose files another user would get")
	}
}
