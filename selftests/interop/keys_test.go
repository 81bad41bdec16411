package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// keys makes the guest's kernel authenticate before it may connect. The long form uses each group
// but the longest. For that one the emulated processor takes longer than the host's keep-alive
// timeout.
func (b *bench) keys(t *testing.T) {
	groups := []string{"ffdhe2048"}
	if b.long {
		groups = []string{"none", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144"}
	}
	b.run(t, "modprobe nvme_rdma")
	for i, group := range groups {
		t.Run(group, func(t *testing.T) { b.keysOf(t, group, i%4) })
	}
}

// gen generates a key for a name with nvme-cli, with or without a hash function.
func gen(t *testing.T, hash int, name string) string {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "nvme"), "gen-dhchap-key", "--hmac", fmt.Sprint(hash), "--nqn", name).Output()
	testenv.Must(t, err)
	return strings.TrimSpace(string(out))
}

func (b *bench) keysOf(t *testing.T, group string, hash int) {
	host, controller, wrong := gen(t, hash, hostNQN), gen(t, 3-hash, subsystem), gen(t, 0, hostNQN)
	file := filepath.Join(b.dir, "keys")
	testenv.Must(t, os.WriteFile(file, fmt.Appendf(nil, "# of the guest\n%s %s %s\n", hostNQN, host, controller), 0o600))
	v := b.newVolume(t, ", keys: "+file+", group: "+group)
	refused := func(why, secrets string, unproven uint64) {
		t.Helper()
		v.run(t, "! "+v.cli("connect")+" -n "+subsystem+" "+secrets)
		testenv.Wait(t, limit, why+" to be counted", func() bool {
			s, err := v.daemon.Status()
			return err == nil && s.Flows[0].Hosts.Unproven == unproven && s.Flows[0].Hosts.Queues == 0
		})
	}
	refused("a host without a key", "", 0)
	if b.line.Name == "6.1" { // its kernel is built without authentication
		v.daemon.Terminate(t)
		return
	}
	refused("a host with another key", "--dhchap-secret="+wrong, 1)
	refused("a host that does not believe us", "--dhchap-secret="+host+" --dhchap-ctrl-secret="+wrong, 2)
	for _, secrets := range []string{"--dhchap-secret=" + host, "--dhchap-secret=" + host + " --dhchap-ctrl-secret=" + controller} {
		v.longRun(t, v.connect("-i 2 "+secrets)+v.fio("blocks", "--size=64k --rw=randwrite --bs=4k --iodepth=4")+disconnect)
	}
	if s, err := v.daemon.Status(); err != nil || s.Flows[0].Hosts.Unproven != 2 || s.Flows[0].Hosts.Bytes["written"] < 128<<10 {
		t.Errorf("%v, %+v", err, s.Flows[0].Hosts)
	}
	v.daemon.Terminate(t)
}
