//go:build verbs && cgo

package group

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// The network of the two guests. In the first guest a bridge joins the wire between them (docs/background/testing.md) with
// the namespaces of the third member and of the client. The bridge takes over the wire's address.
const (
	wireCard  = "link0"
	wireMTU   = 4200
	bridge    = "group0"
	bridgeMAC = "02:77:00:00:05:01"
	orders    = ":18604" // where the second guest takes orders
	// guestRate is how many messages a second the client appends, and perGuestClient how many one client
	// does. Emulated members keep up with them.
	guestRate, perGuestClient = 50, 1000
	// Emulated processors would be busy with a heartbeat of the usual time, and with naps of the usual time.
	guestSuspect, guestHeartbeat, guestSleep = 3 * time.Second, 100 * time.Millisecond, 2 * time.Millisecond
)

// mostKills is after how many kills the test gives up waiting for all kinds of fail-over.
const mostKills = 15

// kernelMembers are the members with kernel verbs. The last one has RoCE in software.
const kernelMembers = 2

// address returns the address of a member, from 0 on, or of the client.
func address(n int) string { return fmt.Sprintf("10.78.0.%d", n+1) }

// order is what the first guest wants of a member, and answer is what has become of it.
type order struct {
	Do   string
	Args []string
}

type answer struct {
	Text   string
	Failed string // why it was not done
	Status status.Daemon
}

// member is a member of the group, in this guest or in the other one.
type member interface{ obey(order) answer }

// seat is a member in this guest.
type seat struct {
	*testing.T
	number int // from 0 on
	at     daemon.Place
	device string
	dir    string
	d      *daemon.Daemon
	// earlier is what the daemons have logged that were started before.
	earlier string
}

func newSeat(t *testing.T, number int, at daemon.Place, device string) *seat {
	return &seat{T: t, number: number, at: at, device: device, dir: testenv.DiskDir(t)}
}

// text is the configuration of the member.
func (s *seat) text() string {
	var all strings.Builder
	for n := range members {
		fmt.Fprintf(&all, "\n          - {name: m%d, address: \"%s:7491\", clients: \"%[2]s:7471\"}", n+1, address(n))
	}
	return fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
workers: [{name: main, sleep: %v}]
flows:
  - name: orders
    from: {rdma: "%s", listen: "%s:7471", message: 1KiB, clients: 4, window: 64}
    to:
      file: %s/orders
      acknowledge: durable
      layout: slot
      segment: {size: 4MiB}
      group:
        name: orders
        self: m%d
        suspect: %v
        heartbeat: %v
        lag: 4MiB
        members: %s
`, guestSleep, s.device, address(s.number), s.dir, s.number+1, guestSuspect, guestHeartbeat, all.String())
}

// obey does what an order says.
func (s *seat) obey(o order) (a answer) {
	var err error
	switch o.Do {
	case "start":
		if s.d != nil {
			s.earlier += s.d.Log.String()
		}
		s.d = daemon.Launch(s.T, program, s.at, s.dir, s.text())
	case "log":
		a.Text = s.earlier + s.d.Log.String()
	case "kill":
		s.d.Kill()
	case "pause":
		s.d.Pause(s.T)
	case "resume":
		s.d.Resume(s.T)
	case "stop":
		s.d.Terminate(s.T)
	case "status":
		a.Status, err = s.d.Status()
	case "control":
		a.Text, err = s.d.Control(o.Args...)
	case "sum":
		a.Text = logSum(s.T, s.at, s.dir+"/orders", s.number64(o.Args[0]))
	default:
		err = fmt.Errorf("there is no order %q", o.Do)
	}
	if err != nil {
		a.Failed = err.Error()
	}
	return a
}

// number64 parses a number.
func (s *seat) number64(text string) (n uint64) {
	if _, err := fmt.Sscan(text, &n); err != nil {
		s.Fatal(err)
	}
	return n
}

// serve takes orders from the first guest until it closes the connection.
func (s *seat) serve() {
	l, err := net.Listen("tcp", address(s.number)+orders)
	testenv.Must(s, err)
	defer l.Close()
	conn, err := l.Accept()
	testenv.Must(s, err)
	defer conn.Close()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	for o := (order{}); in.Decode(&o) == nil; o = (order{}) {
		testenv.Must(s, out.Encode(s.obey(o)))
	}
}

// remote is a member in the other guest.
type remote struct {
	*testing.T
	conn net.Conn
	in   *json.Decoder
	out  *json.Encoder
}

// dial connects to the second guest.
func dial(t *testing.T, to string) *remote {
	t.Helper()
	r := &remote{T: t}
	testenv.Wait(t, 2*time.Minute, "the other guest", func() bool {
		var err error
		r.conn, err = net.DialTimeout("tcp", to, 5*time.Second)
		return err == nil
	})
	t.Cleanup(func() { _ = r.conn.Close() })
	r.in, r.out = json.NewDecoder(r.conn), json.NewEncoder(r.conn)
	return r
}

func (r *remote) obey(o order) (a answer) {
	r.Helper()
	_ = r.conn.SetDeadline(time.Now().Add(testenv.Within(limit)))
	if err := r.out.Encode(o); err != nil {
		r.Fatalf("ask the other guest to %v: %v", o, err)
	}
	if err := r.in.Decode(&a); err != nil {
		r.Fatalf("hear from the other guest, which was asked to %v: %v", o, err)
	}
	return a
}

// TestBetweenGuests: a group of a member in each of two guests, with kernel verbs, and one with RoCE in
// software in the first guest. Each of them is killed while it leads, until kernel verbs have taken over from
// kernel verbs, and each provider from the other one. Only make test-long SUITE=group-guests runs it, in both guests of a
// pair.
func TestBetweenGuests(t *testing.T) {
	labenv.Guest(t)
	if os.Getenv("UNIFIEDD_LAB_HOST") == "2" {
		run(t, "ip", "link", "set", wireCard, "mtu", fmt.Sprint(wireMTU))
		newSeat(t, 1, daemon.Here{}, kernelDevice(t, wireCard)).serve()
		return
	}
	g := newGuests(t)
	for i := range members {
		g.ask(i, "start")
	}
	t.Cleanup(g.explain)
	took := map[[2]bool]bool{} // whether the leader that was killed has kernel verbs, and the next one
	for n := 0; n < members || n < mostKills && len(took) < 3; n++ {
		who, to := n%members, -1
		if who < kernelMembers && n/members%2 == 0 {
			to = members - 1
		}
		next := g.failOver(who, to)
		took[[2]bool{who < kernelMembers, next < kernelMembers}] = true
	}
	if len(took) < 3 {
		t.Errorf("of three kinds of fail-over there were %v", took)
	}
	g.finish()
}

// kernelDevice makes the Soft-RoCE device of an interface.
func kernelDevice(t *testing.T, card string, addresses ...string) (device string) {
	t.Helper()
	device = labenv.SoftRoCE(t, card, addresses...)
	t.Cleanup(func() { labenv.RDMAAtRest(t, device) })
	return device
}

// run runs a program in the namespace of the test.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// joinWire makes the bridge, and makes the wire one of its ports.
func joinWire(t *testing.T) {
	t.Helper()
	labenv.Modules(t, "bridge", "veth")
	mtu := fmt.Sprint(wireMTU)
	run(t, "ip", "link", "set", wireCard, "mtu", mtu)
	run(t, "ip", "link", "add", bridge, "address", bridgeMAC, "mtu", mtu, "type", "bridge")
	t.Cleanup(func() {
		if link, err := netlink.LinkByName(bridge); err != nil || netlink.LinkDel(link) != nil {
			t.Errorf("remove the bridge: %v", err)
		}
	})
	run(t, "ip", "link", "set", wireCard, "master", bridge)
	run(t, "ip", "addr", "del", address(0)+"/24", "dev", wireCard)
	t.Cleanup(func() { run(t, "ip", "addr", "add", address(0)+"/24", "dev", wireCard) })
}

// port makes a namespace with one end of a veth pair, whose other end is a port of the bridge.
func port(t *testing.T, number int) *testenv.End {
	t.Helper()
	e := &testenv.End{Namespace: testenv.NewNamespace(t), Ifname: fmt.Sprintf("end%d", number+1)}
	other, mtu := fmt.Sprintf("port%d", number+1), fmt.Sprint(wireMTU)
	run(t, "ip", "link", "add", other, "mtu", mtu, "type", "veth", "peer", "name", e.Ifname, "mtu", mtu, "netns", e.Name)
	t.Cleanup(func() { run(t, "ip", "link", "del", other) })
	off := []string{"tx", "off", "rx", "off", "tso", "off", "gso", "off", "gro", "off"}
	run(t, "ethtool", append([]string{"-K", other}, off...)...)
	e.Run(t, "ethtool", append([]string{"-K", e.Ifname}, off...)...)
	run(t, "ip", "link", "set", other, "master", bridge, "up")
	e.Run(t, "ip", "addr", "add", address(number)+"/24", "dev", e.Ifname)
	e.Run(t, "ip", "link", "set", "lo", "up")
	e.Run(t, "ip", "link", "set", e.Ifname, "up")
	return e
}

// guests is the group as the first guest sees it.
type guests struct {
	*testing.T
	all    []member
	down   int // the member that does not run or does not answer; -1: none
	at     *testenv.End
	client *daemon.Client
	count  uint64 // of messages that clients append
}

func newGuests(t *testing.T) *guests {
	t.Helper()
	joinWire(t)
	device := kernelDevice(t, bridge, address(0)+"/24")
	e := port(t, members-1)
	g := &guests{T: t, down: -1, at: port(t, members)}
	g.all = []member{newSeat(t, 0, daemon.Here{}, device), dial(t, address(1)+orders), newSeat(t, members-1, e, "roce:"+e.Ifname)}
	return g
}

// explain logs what all members have logged, if the test has failed.
func (g *guests) explain() {
	if !g.Failed() {
		return
	}
	for i, m := range g.all {
		g.Logf("member %d:\n%s", i+1, m.obey(order{Do: "log"}).Text)
	}
}

// ask gives an order that a member must be able to do.
func (g *guests) ask(i int, do string, args ...string) answer {
	g.Helper()
	a := g.all[i].obey(order{do, args})
	if a.Failed != "" {
		g.Fatalf("member %d is asked to %s %v: %s\n%s", i+1, do, args, a.Failed, a.Text)
	}
	return a
}

// flow returns the status of a member's flow; nil: it does not answer.
func (g *guests) flow(i int) *status.Flow {
	if i == g.down {
		return nil
	}
	a := g.all[i].obey(order{Do: "status"})
	if a.Failed != "" || len(a.Status.Flows) != 1 || a.Status.Flows[0].Group == nil {
		return nil
	}
	return &a.Status.Flows[0]
}

// load makes sure that a client appends. It knows all members.
func (g *guests) load() {
	g.Helper()
	if g.client != nil {
		if !g.client.Over() {
			return
		}
		g.client.Await(g.T, limit)
		_, result, _ := strings.Cut(g.client.Out.String(), "appended ")
		g.Logf("a client has appended %s", strings.TrimSpace(result))
	}
	var to []string
	for i := range members {
		to = append(to, address(i)+":7471")
	}
	g.count += perGuestClient
	g.client = daemon.StartClient(g.T, flowTest, g.at, "append", "-device", "roce:"+g.at.Ifname, "-ordinary", "-memory", fmt.Sprint(32<<20), "-receive-ring", "512", "-to", strings.Join(to, ","),
		"-flow", "orders", "-count", fmt.Sprint(perGuestClient), "-rate", fmt.Sprint(guestRate), "-timeout", "30m")
}

// until waits for something, while a client appends.
func (g *guests) until(what string, ok func() bool) {
	g.Helper()
	testenv.Wait(g.T, time.Minute, what, func() bool {
		g.load()
		return ok()
	})
}

// leader waits until a member leads a later epoch, as it says itself.
func (g *guests) leader(after uint64) (who int, epoch uint64) {
	g.Helper()
	g.until("a member to lead", func() bool {
		epoch = after
		for i := range members {
			if f := g.flow(i); f != nil && f.Group.State == "leading" && f.Group.Epoch > epoch {
				who, epoch = i, f.Group.Epoch
			}
		}
		return epoch > after
	})
	return who, epoch
}

// together waits until all members have about as many records.
func (g *guests) together() {
	g.Helper()
	g.until("all members to have the newest records", func() bool {
		var at []uint64
		for i := range members {
			if f := g.flow(i); f != nil {
				at = append(at, f.Group.Committed)
			}
		}
		return len(at) == members && slices.Max(at)-slices.Min(at) < guestRate
	})
}

// transfer makes a member lead.
func (g *guests) transfer(to int) {
	g.Helper()
	g.together()
	g.until(fmt.Sprintf("member %d to lead", to+1), func() bool {
		who, _ := g.leader(0)
		if who != to {
			if a := g.all[who].obey(order{"control", []string{"group", "transfer", "orders", fmt.Sprintf("m%d", to+1)}}); a.Failed != "" {
				g.Logf("transfer to member %d: %s %s", to+1, a.Failed, a.Text)
			}
		}
		return who == to
	})
}

// more waits until a member knows of some more committed records.
func (g *guests) more(who int) {
	g.Helper()
	first := uint64(0)
	g.until("more records to be committed", func() bool {
		f := g.flow(who)
		if f == nil {
			return false
		}
		if first == 0 {
			first = f.Group.Committed
		}
		return f.Group.Committed >= first+guestRate/2
	})
}

// failOver makes a member the leader and kills it. It returns who leads next. If to is not negative, that
// member is more likely to: the third one is stopped before, and lacks records then.
func (g *guests) failOver(who, to int) (next int) {
	g.Helper()
	epoch := g.leads(who)
	third := members - who - to
	if to >= 0 {
		g.ask(third, "pause")
		g.more(who)
	}
	g.ask(who, "kill")
	g.down = who
	began := time.Now()
	if to >= 0 {
		time.Sleep(guestSuspect / 4)
		g.ask(third, "resume")
	}
	next, _ = g.leader(epoch)
	missing := time.Since(began)
	g.more(next)
	g.Logf("member %d was killed; member %d leads after %v, and has committed records after %v", who+1, next+1, missing.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	g.ask(who, "start")
	g.down = -1
	return next
}

// leads makes a member lead, and commit records. It returns the epoch.
func (g *guests) leads(who int) (epoch uint64) {
	g.Helper()
	for range 10 { // an emulated leader may be slow for longer than suspect
		g.transfer(who)
		_, epoch = g.leader(0)
		g.more(who)
		g.together()
		if now, last := g.leader(0); now == who && last == epoch {
			g.copiesNothing(who)
			return epoch
		}
		g.Logf("epoch %d has ended before member %d was killed", epoch, who+1)
	}
	g.Fatalf("member %d does not go on leading", who+1)
	return 0
}

// copiesNothing checks that a leader with kernel verbs has sent records and copied none, but those that
// members lacked when they came back.
func (g *guests) copiesNothing(who int) {
	g.Helper()
	f := g.flow(who)
	if f == nil || f.Group.Sent == 0 {
		g.Errorf("member %d has sent no records: %+v", who+1, f)
		return
	}
	g.Logf("member %d has sent %d records, %d bytes of them from segments; it has copied %v, and the kernel %v", who+1, f.Group.Sent, f.Group.Copied, f.CopiedBytes, f.KernelBytes)
	if who >= kernelMembers {
		return
	}
	for reason, n := range f.CopiedBytes {
		if n != 0 && reason != "catch_up" {
			g.Errorf("member %d has copied %d bytes: %s", who+1, n, reason)
		}
	}
}

// finish waits for the client, and checks that all logs are equal and have every message once.
func (g *guests) finish() {
	g.Helper()
	g.client.Await(g.T, limit)
	testenv.Wait(g.T, time.Minute, "all members to have all records", func() bool {
		last := map[uint64]bool{}
		for i := range members {
			f := g.flow(i)
			if f == nil {
				return false
			}
			last[f.Group.Committed] = true
		}
		return len(last) == 1
	})
	var sums []string
	for i := range members {
		g.ask(i, "stop")
		sums = append(sums, g.ask(i, "sum", fmt.Sprint(g.count)).Text)
	}
	if len(slices.Compact(slices.Clone(sums))) != 1 {
		g.Errorf("the logs differ: %v", sums)
	}
	g.Logf("%d messages are in each log once: %s", g.count, sums[0])
}
