package documents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
	"github.com/unifiedd/unifiedd/umem"
)

// root is the top of the source tree.
const root = "../.."

// program, flowTest and example are the paths of programs, and path has the directories of all, built once.
var program, flowTest, example, path string

func TestMain(m *testing.M) {
	for name, at := range map[string]*string{"docs/examples/append": &example, "selftests/unified-rdma-test": nil, "selftests/unified-tick-test": nil} {
		found, err := testenv.FindProgram(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if at != nil {
			*at = found
		}
		path += filepath.Dir(found) + ":"
	}
	status := daemon.WithPrograms(m.Run, &program, &flowTest)
	if object != "" {
		_ = os.RemoveAll(filepath.Dir(object)) // it is only left behind
	}
	os.Exit(status)
}

// document is a configuration from a document.
type document struct{ name, text string }

// fence matches a block of YAML in a document.
var fence = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// documents returns the configurations in the documents for users. If one shows only the source of
// a flow, documents adds the rest.
func documents(t *testing.T) (all []document) {
	t.Helper()
	names, err := filepath.Glob(root + "/docs/*/*.md")
	testenv.Must(t, err)
	names = slices.DeleteFunc(names, func(name string) bool { return strings.Contains(name, "/tutorials/") }) // TestCommands runs these
	for _, name := range append(names, root+"/README.md") {
		for i, m := range fence.FindAllStringSubmatch(read(t, name), -1) {
			text := m[1]
			if strings.HasPrefix(text, "from:") {
				text = "flows:\n  - name: shown\n    to: {file: /var/lib/unifiedd/shown}\n    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
			}
			all = append(all, document{fmt.Sprintf("%s.%d", filepath.Base(name), i+1), text})
		}
	}
	return append(all, document{"unifiedd.yaml", read(t, root+"/packaging/unifiedd.yaml")})
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	testenv.Must(t, err)
	return string(b)
}

// machine has everything that the documents name: interfaces eth1, eth2 with address 10.0.0.1 and eth3 with 10.1.0.1, a
// user unifiedd, /var/lib/unifiedd with an image, and /etc/unifiedd. The files of this machine do
// not change: the daemon has its own mounts.
type machine struct {
	*testenv.Pair
	files
}

// files are those of a machine.
type files struct {
	dir     string
	wrapper string // starts the program with the mounts
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{testenv.NewPair(t, testenv.PairOptions{}), newFiles(t)}
	for i, name := range []string{"eth1", "eth2", "eth3"} {
		m.A.Run(t, "ip", "link", "add", name, "mtu", "4200", "type", "veth", "peer", "name", name, "netns", m.B.Name)
		for _, e := range []*testenv.End{&m.A, &m.B} {
			e.Run(t, "ip", "link", "set", name, "mtu", fmt.Sprint(1500+2700*min(i, 1)), "up")
		}
	}
	m.B.Run(t, "sysctl", "-qw", "net.ipv6.conf.eth1.disable_ipv6=0") // a flow joins a group of IPv6
	m.B.Run(t, "ip", "address", "add", "10.0.0.1/24", "dev", "eth2")
	m.A.Run(t, "ip", "address", "add", "10.0.0.9/24", "dev", "eth2")
	m.B.Run(t, "ip", "address", "add", "10.1.0.1/24", "dev", "eth3")
	return m
}

// newFiles makes the files that the documents name.
func newFiles(t *testing.T) files {
	t.Helper()
	m := files{dir: testenv.DiskDir(t)}
	for path := m.dir; strings.HasPrefix(path, os.TempDir()+"/"); path = filepath.Dir(path) { // so that the daemon's user reaches it
		testenv.Must(t, os.Chmod(path, 0o755))
	}
	if err := os.Chmod(m.dir, 0o777); err != nil { // the control socket is there
		t.Fatal(err)
	}
	for _, dir := range []string{"lib/unifiedd", "run", "etc/unifiedd", "work"} {
		testenv.Must(t, os.MkdirAll(filepath.Join(m.dir, dir), 0o755))
	}
	passwd, err := os.ReadFile("/etc/passwd")
	testenv.Must(t, err)
	m.write(t, "etc/passwd", fmt.Sprintf("%sunifiedd:x:%d:%[2]d::/nonexistent:/usr/sbin/nologin\n", others(string(passwd)), user), 0o644)
	run(t, "cp", compiled(t), filepath.Join(m.dir, "etc/unifiedd/mine.o"))
	run(t, flowTest, "make", "-file", filepath.Join(m.dir, "lib/unifiedd/image"), "-size", "1048576")
	m.wrapper = filepath.Join(m.dir, "unifiedd")
	m.write(t, "unifiedd", fmt.Sprintf(`#!/bin/sh
exec unshare --mount --propagation private sh -ec '
mount --bind %[1]s/lib /var/lib
mount --bind %[1]s/run /run
mount -t overlay overlay -o lowerdir=/etc,upperdir=%[1]s/etc,workdir=%[1]s/work /etc
exec %[2]s "$@"' unifiedd "$@"
`, m.dir, program), 0o755)
	return m
}

// object is the program of the document about filters, compiled; empty: it is not yet.
var object string

// compiled compiles that program with the command of the document, once.
func compiled(t *testing.T) string {
	t.Helper()
	if object != "" {
		return object
	}
	compile := regexp.MustCompile("(?m)^    (clang .* mine.o)$").FindStringSubmatch(read(t, root+"/docs/reference/filters.md"))
	if compile == nil {
		t.Fatal("docs/reference/filters.md does not say how to compile the program")
	}
	dir, err := os.MkdirTemp("", "unifiedd-documents-")
	testenv.Must(t, err)
	testenv.Must(t, os.WriteFile(filepath.Join(dir, "mine.c"), []byte(code(t)), 0o644))
	run(t, "sh", "-ec", "cd "+dir+"; "+compile[1])
	object = filepath.Join(dir, "mine.o")
	return object
}

// user is the number of the daemon's user.
const user = 64321

// others returns the users except the daemon's.
func others(passwd string) string {
	return regexp.MustCompile("(?m)^unifiedd:.*\n").ReplaceAllString(passwd, "")
}

func (m *files) write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	testenv.Must(t, os.WriteFile(filepath.Join(m.dir, name), []byte(text), mode))
}

// code returns the C program in the document about filters.
func code(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile("(?ms)^```c\n(.*?)^```$").FindStringSubmatch(read(t, root+"/docs/reference/filters.md"))
	if m == nil {
		t.Fatal("docs/reference/filters.md has no program in C")
	}
	return m[1]
}

// run runs a program to its end.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// checked are the configurations of groups, of peers that are found in etcd, of a channel to another machine, and for devices
// that only some machines have. They are checked here; selftests/group, selftests/cluster, selftests/attach and the lab's tests of
// flows/nvmet and umem start such daemons.
var checked = []string{"nvme-of.md.1", "persistent-memory.md.1", "groups.md.1", "groups.md.2", "cluster.md.1", "cluster.md.2", "cluster.md.3", "cluster.md.4", "attach.md.5", "attach.md.6"}

// TestDocuments: the daemon starts with each configuration in the documents, unchanged, and every
// flow works: flows from an interface take packets, logs take messages, and block flows serve
// blocks.
func TestDocuments(t *testing.T) {
	testenv.Root(t)
	testenv.HugePages(t, 294<<20)
	for _, d := range documents(t) {
		t.Run(d.name, func(t *testing.T) {
			m := newMachine(t)
			file := filepath.Join(m.dir, "shown.yaml")
			m.write(t, "shown.yaml", d.text, 0o644)
			if strings.Contains(d.text, "\nuser: unifiedd") { // as in the package, the user owns the directory
				testenv.Must(t, os.Chown(filepath.Join(m.dir, "lib/unifiedd"), user, user))
			}
			if out, err := m.B.Command(m.wrapper, "check", "-c", file).CombinedOutput(); err != nil {
				t.Fatalf("check: %v\n%s", err, out)
			}
			if slices.Contains(checked, d.name) {
				return
			}
			p := daemon.Launch(t, m.wrapper, &m.B, m.dir, d.text)
			s := p.Until(t, "the flows to run", func(s *status.Daemon) bool {
				return len(s.Flows) > 0 && !slices.ContainsFunc(s.Flows, func(f status.Flow) bool { return !f.State.Up() })
			})
			m.use(t, &s)
			p.Until(t, "all flows to have had something to do", func(s *status.Daemon) bool {
				return !slices.ContainsFunc(s.Flows, func(f status.Flow) bool { return f.Packets == 0 && f.Name != "replicate" })
			})
			p.Terminate(t)
		})
	}
}

// use sends packets, messages and requests to the flows.
func (m *machine) use(t *testing.T, s *status.Daemon) {
	t.Helper()
	m.packets(t)
	for _, f := range s.Flows {
		device := []string{"-device", "roce:eth2", "-ordinary", "-memory", "33554432", "-flow", f.Name, "-timeout", "30s"}
		switch f.Kind {
		case "rdma-storage":
			m.A.Run(t, flowTest, append([]string{"append", "-to", "10.0.0.1:7471", "-count", "100"}, device...)...)
		case "attach-storage":
			m.submit(t, f.Name, "strategy", []byte("buy 100"))
		case "attach-order":
			m.trade(t, f.Name, f.Orders.Given)
		case "attach-state":
			m.submit(t, f.Name, "pricing", attached.AppendPutObject(nil, 0, []byte("101.5")))
			m.look(t, f.Updates.State)
		case "rdma-state":
			m.A.Run(t, flowTest, append([]string{"append", "-to", "10.0.0.1:7471", "-count", "100", "-keys", "20", "-size", "64"}, device...)...)
			run(t, flowTest, "state", "-socket", filepath.Join(m.dir, "run/unifiedd/attach.sock"), "-as", "quoting", "-reads", f.Updates.State, "-keys", "20", "-count", "100", "-timeout", "30s")
		case "storage-rdma":
			m.A.Run(t, flowTest, append([]string{"read", "-from", "10.0.0.1:7472", "-count", "20"}, device...)...)
		}
	}
}

// as attaches as a program of the documents' user, and calls f.
func (m *machine) as(program string, f func(k *attached.Client) error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, which is the program's user from here on, ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, user, user, user); errno != 0 {
			done <- errno
			return
		}
		k, err := attached.Attach(attached.Config{Socket: filepath.Join(m.dir, "run/unifiedd/attach.sock"), Name: program})
		if err == nil {
			err = f(k)
		}
		done <- err
	}()
	return <-done
}

// submit sends a message as the program of a flow.
func (m *machine) submit(t *testing.T, flow, program string, message []byte) {
	t.Helper()
	if err := m.as(program, func(k *attached.Client) error {
		s, err := k.Send(flow, 0)
		if err != nil {
			return errors.Join(err, k.Close())
		}
		f, err := s.Claim()
		if err == nil {
			_, err = s.Commit(f, copy(f.Data, message))
		}
		var got [1]attached.Receipt
		for n := 0; n == 0 && err == nil; {
			if err = s.Wait(t.Context(), time.Second); err == nil {
				n, err = s.Poll(got[:])
			}
		}
		if err == nil && got[0].Position != 1 {
			err = fmt.Errorf("the first message has the receipt %+v", got[0])
		}
		return errors.Join(err, s.Close(), k.Close())
	}); err != nil {
		t.Errorf("flow %s: %v", flow, err)
	}
}

// give connects to the exchange, and gives the connection to a flow, as a program does that is attached until the end of the
// test.
func (m *machine) give(t *testing.T, flow, program string) {
	t.Helper()
	var c net.Conn
	m.B.Do(t, func() {
		var err error
		if c, err = net.Dial("tcp", "10.0.0.9:4001"); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { c.Close() })
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err == nil {
		outer := raw.Control(func(fd uintptr) { err = unix.Fchown(int(fd), user, user) }) // as if that user had connected
		err = errors.Join(outer, err)
	}
	if err == nil {
		err = m.as(program, func(k *attached.Client) error {
			t.Cleanup(func() { k.Close() })
			_, err := k.Give(flow, c.(*net.TCPConn))
			return err
		})
	}
	testenv.Mustf(t, err, "flow %s", flow)
}

// trade sends an order as the program of a flow, and checks that it reaches the exchange, which is on the other host. giver
// is the program that gives the connection, if one does.
func (m *machine) trade(t *testing.T, flow, giver string) {
	t.Helper()
	var l net.Listener
	m.A.Do(t, func() {
		var err error
		if l, err = net.Listen("tcp", "10.0.0.9:4001"); err != nil {
			t.Fatal(err)
		}
	})
	defer l.Close()
	got := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- err.Error()
			return
		}
		b := make([]byte, 64)
		n, _ := c.Read(b) // what it has read is compared
		got <- string(b[:n])
		_, _ = c.Read(b) // until the daemon ends
		_ = c.Close()
	}()
	if giver != "" {
		m.give(t, flow, giver)
	}
	const order = "\x00\x05login" // its length is in front, as limits want it
	m.submit(t, flow, "strategy", []byte(order))
	select {
	case text := <-got:
		if text != order {
			t.Errorf("flow %s: the exchange has got %q", flow, text)
		}
	case <-time.After(testenv.Within(10 * time.Second)):
		t.Errorf("flow %s: the exchange has got nothing", flow)
	}
}

// look reads object 0 of a state as a program of this host, and over RDMA as another host.
func (m *machine) look(t *testing.T, state string) {
	t.Helper()
	k, err := attached.Attach(attached.Config{Socket: filepath.Join(m.dir, "run/unifiedd/attach.sock"), Name: "quoting"})
	testenv.Must(t, err)
	defer k.Close()
	local, err := k.State(state)
	testenv.Must(t, err)
	defer local.Close()
	holds(t, "the program", local)
	m.A.Do(t, func() {
		c := opened(t)
		defer c.Close()
		remote, err := c.State(t.Context(), client.StateConfig{Address: "10.0.0.1:7490", State: state})
		testenv.Must(t, err)
		defer remote.Close()
		holds(t, "the other host", remote)
	})
}

// holds checks that object 0 has what was written.
func holds(t *testing.T, who string, s interface {
	Get(object uint64, dst []byte) (n int, version uint64, err error)
}) {
	t.Helper()
	var b [64]byte
	if n, _, err := s.Get(0, b[:]); err != nil || string(b[:n]) != "101.5" {
		t.Errorf("%s reads %q: %v", who, b[:n], err)
	}
}

// opened opens the RDMA device of the other host.
func opened(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.Open(client.Config{Device: "roce:eth2", Memory: 32 << 20, Pages: umem.Ordinary})
	testenv.Must(t, err)
	return c
}

// mold makes the first message of a session of MoldUDP64 of what begins with the checksum of UDP, which is left out.
func mold(b []byte) {
	clear(b)
	copy(b[2:], "DOCUMENTS ")
	binary.BigEndian.PutUint64(b[12:], 1)
	binary.BigEndian.PutUint16(b[20:], 1)
	binary.BigEndian.PutUint16(b[22:], uint16(len(b)-24))
}

// packets sends some packets of each kind that filters in the documents accept.
func (m *machine) packets(t *testing.T) {
	t.Helper()
	from := testenv.End{Namespace: m.A.Namespace, Ifname: "eth1", IP: netip.MustParseAddr("10.1.0.1")}
	m.A.Do(t, func() {
		link, err := net.InterfaceByName("eth1")
		testenv.Must(t, err)
		from.Index, from.MAC = link.Index, link.HardwareAddr
	})
	to := from
	sender := testenv.NewSender(t, &from)
	for _, k := range []struct {
		ip   string
		port uint16
		size int
	}{{"10.1.0.2", 5000, 100}, {"10.1.0.2", 53, 100}, {"10.1.0.2", 9, 100}, {"10.1.0.2", 9, 1200}, {"239.1.1.1", 7000, 100}, {"239.1.1.1", 26400, 100}, {"239.1.3.1", 26500, 100}} {
		to.IP = netip.MustParseAddr(k.ip)
		for range 20 {
			frame := testenv.UDP(&from, &to, k.port, 0, k.size)
			if k.port == 26400 {
				mold(frame[40:])
			}
			if sent, err := sender.Send(frame); !sent || err != nil {
				t.Fatalf("a packet is not sent: %v", err)
			}
		}
	}
}
