package privsep

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/ruledcard"
	"github.com/unifiedd/unifiedd/xdp"
)

// steer is a daemon that adds rules to a card, and waits.
func steer(o Options, _ Outcome) int {
	if _, err := xdp.Steer("lo", []filter.Tuple{{EtherType: 0x88b5}}, []uint32{1}, o.Steering); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(os.Getpid())
	select {}
}

// TestRulesTakenOut: the parent process removes the rules that a killed daemon leaves in a card,
// and no others.
func TestRulesTakenOut(t *testing.T) {
	dir := openDir(t)
	testenv.Must(t, os.Chown(dir, nobody, nobody))
	card := ruledcard.New(4)
	cmd := play(t, "steer", Options{User: strconv.Itoa(nobody), Keep: Needed, Steering: dir})
	out, err := cmd.StdoutPipe()
	testenv.Must(t, err)
	cmd.Stderr = os.Stderr
	card.Start(t, cmd)
	testenv.Must(t, out.(*os.File).SetReadDeadline(time.Now().Add(20*time.Second)))
	lines := bufio.NewScanner(out)
	lines.Scan()
	daemon, err := strconv.Atoi(lines.Text())
	if err != nil || daemon == cmd.Process.Pid {
		t.Fatalf("the daemon is process %q, of parent process %d", lines.Text(), cmd.Process.Pid)
	}
	card.Count(t, 1)
	testenv.Must(t, unix.Kill(daemon, unix.SIGKILL))
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 128+int(unix.SIGKILL) {
		t.Errorf("exit status %d", got)
	}
	card.Count(t, 0)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}
