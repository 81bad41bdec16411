package transfer

import (
	"bytes"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
)

// document is where the commands are.
const document = "../../docs/how-to/transfer.md"

// TestDocument: each command in docs/how-to/transfer.md runs as it stands, on two machines with an interface eth1 and the files
// that it names. The hash of other programs is the one that unifiedd prints.
func TestDocument(t *testing.T) {
	testenv.Root(t)
	testenv.HugePages(t, 160<<20)
	m := newMachines(t)
	var receiver *process
	var printed string
	sends := 0
	for _, line := range commands(t) {
		switch {
		case strings.HasPrefix(line, "unifiedd receive --status"):
			if out := m.run(t, &m.B, line); !strings.Contains(out, "nothing is incomplete") {
				t.Errorf("%s: %s", line, out)
			}
		case strings.HasPrefix(line, "unifiedd receive"):
			if receiver != nil {
				end(t, receiver)
			}
			receiver = m.receiver(t, line)
		case strings.HasPrefix(line, "unifiedd send"):
			out := m.run(t, &m.A, line)
			sum := regexp.MustCompile(`checksum: ([0-9a-f]{64})`).FindStringSubmatch(out)
			if sum == nil {
				t.Fatalf("%s: %s", line, out)
			}
			if strings.Contains(line, " disk.img ") {
				printed = sum[1]
			}
			sends++
		default:
			if out := m.run(t, &m.A, line); !strings.HasPrefix(out, printed) || printed == "" {
				t.Errorf("%s: %s, want %s", line, out, printed)
			}
		}
	}
	end(t, receiver)
	if sends < 3 {
		t.Fatalf("the document has %d commands that send", sends)
	}
	for _, name := range []string{"disk.img", "disks/old.img"} {
		if got, err := os.ReadFile(filepath.Join(m.dir, "srv/images", name)); err != nil || !bytes.Equal(got, m.image) {
			t.Errorf("%s has %d bytes: %v", name, len(got), err)
		}
	}
}

// commands are the indented lines of the document.
func commands(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(document)
	testenv.Must(t, err)
	for _, m := range regexp.MustCompile(`(?m)^    ([a-z].*)$`).FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	return all
}

// machines are two machines as the document has them.
type machines struct {
	*testenv.Pair
	dir, wrapper string
	image        []byte
}

func newMachines(t *testing.T) *machines {
	t.Helper()
	m := &machines{Pair: testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, MTU: 4200}), dir: testenv.DiskDir(t), image: bytes.Repeat([]byte("unifiedd"), 400_000)}
	for address, e := range map[string]*testenv.End{"10.0.0.1/24": &m.A, "10.0.0.2/24": &m.B} {
		e.Rename(t, "eth1")
		e.Run(t, "ip", "address", "add", address, "dev", "eth1")
	}
	for _, dir := range []string{"srv/images/disks", "work"} {
		testenv.Must(t, os.MkdirAll(filepath.Join(m.dir, dir), 0o755))
	}
	ca := authority.New(t)
	files := map[string]string{"ca.pem": ca.File()}
	for name, of := range map[string]string{"here": "storage", "backup1": "backup1"} {
		files[name+".pem"], files[name+".key"] = ca.Issue(t, of, func(c *x509.Certificate) { c.DNSNames = []string{of} })
	}
	for name, path := range files {
		text, err := os.ReadFile(path)
		testenv.Must(t, err, os.WriteFile(filepath.Join(m.dir, "work", name), text, 0o600))
	}
	for _, name := range []string{"work/disk.img", "srv/old.img"} {
		testenv.Must(t, os.WriteFile(filepath.Join(m.dir, name), m.image, 0o644))
	}
	m.wrapper = filepath.Join(m.dir, "wrapper")
	text := `#!/bin/sh
exec unshare --mount --propagation private sh -ec '
mount --bind "$1/srv" /srv
cd "$1/work"
PATH="$2:$PATH" exec sh -c "$3"' sh "$@"
`
	testenv.Must(t, os.WriteFile(m.wrapper, []byte(text), 0o755))
	return m
}

// command is a command line on a machine. Nothing says who called sudo.
func (m *machines) command(e *testenv.End, line string) *exec.Cmd {
	if strings.HasPrefix(line, "unifiedd") {
		line = "exec " + line // signals are for the program, and not for a shell
	}
	cmd := e.Command(m.wrapper, m.dir, filepath.Dir(program), line)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SUDO_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	return cmd
}

// run runs a command line to its end.
func (m *machines) run(t *testing.T, e *testenv.End, line string) string {
	t.Helper()
	out, err := m.command(e, line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

// receiver starts a receiver, and waits until it listens.
func (m *machines) receiver(t *testing.T, line string) *process {
	t.Helper()
	p := startCommand(t, m.command(&m.B, line))
	testenv.Wait(t, 30*time.Second, "the receiver to listen", func() bool {
		if p.ended() {
			t.Fatalf("%s has ended: %s", line, p.log.String())
		}
		return strings.Contains(p.log.String(), "listening")
	})
	return p
}

// end ends a receiver.
func end(t *testing.T, p *process) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.exited:
	case <-time.After(30 * time.Second):
		t.Fatalf("it does not end: %s", p.log.String())
	}
	if !p.cmd.ProcessState.Success() {
		t.Errorf("%v: %s", p.cmd.ProcessState, p.log.String())
	}
}
