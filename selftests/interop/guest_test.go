package interop

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/lab/archive"
	"github.com/unifiedd/unifiedd/selftests/lab/kit"
	"github.com/unifiedd/unifiedd/selftests/lab/vm"
	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// mtu is the MTU of both ends. It allows an RDMA MTU of 4096.
const mtu = 4200

// The guest's card, and the RDMA device on it.
const (
	card   = "host0"
	device = "rxe0"
)

// bench is a guest with Soft-RoCE, and a namespace with the other end of its card.
type bench struct {
	*vm.Guest
	line    archive.Line // of its kernel
	long    bool         // the long form of the test
	tap     *testenv.Tap
	dir     string         // a directory that host and guest share
	program string         // unified-rdma-test
	gids    map[string]int // index in the guest's GID table, by address
}

// newBench boots the guest while the program is built. The long form also builds it for the guest.
func newBench(t *testing.T, long bool) *bench {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	begin := time.Now()
	line, err := archive.ParseLine(os.Getenv("UNIFIEDD_KERNEL"))
	testenv.Must(t, err)
	b := &bench{line: line, long: long, dir: testenv.DiskDir(t), tap: testenv.NewTap(t, testenv.PairOptions{MTU: mtu, IPv6: true})}
	b.program = filepath.Join(b.dir, "unified-rdma-test")
	built := make(chan error, 1)
	go func() { built <- build(b.program, long) }()
	b.boot(t)
	testenv.Must(t, <-built)
	b.softRoCE(t)
	t.Logf("Linux %s with %s, after %v", b.Version, device, time.Since(begin).Round(100*time.Millisecond))
	return b
}

func build(program string, verbs bool) error {
	args := []string{"build", "-o", program}
	if verbs {
		args = append(args, "-tags=verbs")
	}
	out, err := exec.Command("go", append(args, "../unified-rdma-test")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build unified-rdma-test: %w\n%s", err, out)
	}
	return nil
}

func (b *bench) boot(t *testing.T) {
	t.Helper()
	k, err := kit.Open(t.Context(), b.line, t.Output())
	if err == nil {
		b.Guest, err = k.Boot(t.Context(), vm.Config{Host: 1, Shares: []string{b.dir}, Tap: b.tap.File, TapMTU: mtu})
	}
	testenv.Must(t, err)
	t.Cleanup(func() {
		testenv.Check(t, b.Close())
	})
}

// softRoCE makes the RDMA device. The kernel, not the card, does its work.
func (b *bench) softRoCE(t *testing.T) {
	t.Helper()
	modules := "ib_uverbs rdma_rxe"
	if b.line.Name != "7" {
		modules += " crc32_generic"
	}
	b.run(t, fmt.Sprintf(`set -e
		for module in %[1]s; do modprobe $module; done
		ip address add %[2]v/24 dev %[4]s
		ip address add %[3]v/64 dev %[4]s nodad
		ip link set %[4]s up
		rdma link add %[5]s type rxe netdev %[4]s
		until cat /sys/class/infiniband/%[5]s/ports/1/gid_attrs/types/2 >/dev/null 2>&1; do sleep 0.1; done`,
		modules, b.tap.PeerIP, b.tap.PeerIP6, card, device))
	b.gids = make(map[string]int)
	for n, gid := range strings.Fields(b.run(t, fmt.Sprintf("head -qn 1 /sys/class/infiniband/%s/ports/1/gids/{0,1,2}", device))) {
		b.gids[strings.ReplaceAll(gid, ":", "")] = n
	}
}

// limit is the time limit of most commands.
const limit = 90 * time.Second

// try runs a shell command in the guest.
func (b *bench) try(text string, limit time.Duration, out io.Writer) (vm.Result, error) {
	return b.Run(wire.Command{Args: []string{"/bin/bash", "-c", text}, Dir: "/", Limit: limit}, out)
}

// run is try for a command that must succeed without a complaint in the guest's kernel log.
func (b *bench) run(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	r, err := b.try(text, limit, &out)
	testenv.Must(t, err)
	if r.Code != 0 || len(r.Complaints) > 0 {
		t.Fatalf("in the guest %s\nended with status %d, after %q:\n%s", text, r.Code, r.Complaints, &out)
	}
	return out.String()
}
