package documents

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/etcdserver"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// groupDocument is the name of the configuration of a group.
const groupDocument = "groups.md.1"

// witnessDocument is the configuration of the witness of a group.
const witnessDocument = "groups.md.2"

// namedGroupDocument is the configuration of a group whose members have names.
const namedGroupDocument = "cluster.md.4"

// readLog matches the command in that document that reads a log.
var readLog = regexp.MustCompile("`unifiedd (log read [^`]+)`")

// appended is how many messages the client of the group appends.
const appended = 100

// TestGroup: three daemons with the configuration of a group, each with the changes that the document
// names, keep what a client appends. The command in the document reads it from each.
func TestGroup(t *testing.T) {
	testenv.Long(t, "TestDocuments checks the configurations")
	testenv.Root(t)
	text := named(t, groupDocument)
	var texts []string
	for n := range 3 {
		texts = append(texts, ofMember(text, n))
	}
	keeps(t, texts, 3, nobody)
}

// TestNamedGroup: the same with members that find one another in etcd.
func TestNamedGroup(t *testing.T) {
	testenv.Long(t, "TestDocuments checks the configuration")
	testenv.Root(t)
	text := named(t, namedGroupDocument)
	var texts []string
	for n := range 3 {
		texts = append(texts, strings.Replace(ofMember(text, n), "name: storage-1,", fmt.Sprintf("name: storage-%d,", n+1), 1))
	}
	keeps(t, texts, 3, func(e *testenv.End) { etcdserver.Start(t, etcdserver.Options{At: e, Host: "10.0.0.5", Port: 2379}) })
}

// TestWitness: the same with two members and a witness, which has the configuration of a witness.
func TestWitness(t *testing.T) {
	testenv.Long(t, "TestDocuments checks the configurations")
	testenv.Root(t)
	witness := named(t, witnessDocument)
	from, _, _ := strings.Cut(named(t, groupDocument), "        members:")
	_, members, found := strings.Cut(witness, "        members:")
	if !found {
		t.Fatalf("the configuration of the witness has no members:\n%s", witness)
	}
	text := from + "        members:" + members
	keeps(t, []string{ofMember(text, 0), ofMember(text, 1), witness}, 2, nobody)
}

// named returns a configuration in the documents.
func named(t *testing.T, name string) string {
	t.Helper()
	all := documents(t)
	i := slices.IndexFunc(all, func(d document) bool { return d.name == name })
	if i < 0 {
		t.Fatalf("there is no configuration %s in the documents", name)
	}
	return all[i].text
}

// ofMember changes the configuration of the first member into that of another one.
func ofMember(text string, n int) string {
	return strings.NewReplacer("self: a", fmt.Sprintf("self: %c", 'a'+n), "listen: 10.0.0.1", fmt.Sprintf("listen: 10.0.0.%d", n+1),
		`listen: "10.0.0.1`, fmt.Sprintf(`listen: "10.0.0.%d`, n+1), `listen: "10.1.0.1`, fmt.Sprintf(`listen: "10.1.0.%d`, n+1)).Replace(text)
}

// nobody starts nothing.
func nobody(*testenv.End) {}

// keeps checks that a group of three daemons, of which the first ones have a log, keeps what a client appends. other
// starts what the daemons need, on a host of its own, before them.
func keeps(t *testing.T, texts []string, logs int, other func(*testenv.End)) {
	t.Helper()
	ends := testenv.NewSwitch(t, 5, testenv.PairOptions{MTU: 4200})
	for n, e := range ends {
		rename(t, e, "eth1", fmt.Sprintf("10.0.0.%d/24", n+1))
	}
	other(ends[4])
	var members []*daemon.Daemon
	var disks []files
	for n, e := range ends[:3] {
		f := newFiles(t)
		disks = append(disks, f)
		members = append(members, daemon.Launch(t, f.wrapper, e, f.dir, texts[n]))
	}
	var to []string
	for n := range logs {
		to = append(to, fmt.Sprintf("10.0.0.%d:7471", n+1))
	}
	client := daemon.StartClient(t, flowTest, ends[3], "append", "-json", "-to", strings.Join(to, ","), "-flow", "orders",
		"-count", fmt.Sprint(appended), "-device", "roce:eth1", "-ordinary", "-memory", "33554432", "-timeout", "30s")
	client.Await(t, 40*time.Second)
	var last struct{ Position uint64 }
	_, result, _ := strings.Cut(client.Out.String(), "{") // behind lines of the client's log
	if err := json.NewDecoder(strings.NewReader("{" + result)).Decode(&last); err != nil || last.Position <= appended {
		t.Fatalf("the client says\n%s", &client.Out)
	}
	for _, m := range members[:logs] {
		m.Until(t, "a member to have everything as committed", func(s *status.Daemon) bool {
			return len(s.Flows) == 1 && s.Flows[0].Group != nil && s.Flows[0].Group.Committed >= last.Position
		})
	}
	for _, m := range members { // only now: a member gets what it lacks from the others
		m.Terminate(t)
	}
	command := readLog.FindStringSubmatch(read(t, root+"/docs/groups.md"))
	if command == nil {
		t.Fatal("docs/groups.md does not say how to read a log")
	}
	for i, f := range disks[:logs] {
		checkRecords(t, fmt.Sprintf("member %c", 'a'+i), run(t, f.wrapper, strings.Fields(command[1])...))
	}
}

// rename gives an interface the name and the address that a document has.
func rename(t *testing.T, e *testenv.End, name, address string) {
	t.Helper()
	e.Run(t, "ip", "link", "set", e.Ifname, "down")
	e.Run(t, "ip", "link", "set", e.Ifname, "name", name)
	e.Run(t, "ip", "link", "set", name, "up")
	e.Run(t, "ip", "address", "flush", "dev", name)
	e.Run(t, "ip", "address", "add", address, "dev", name)
}

// checkRecords checks that log read printed every message of the client once and in order, with its length.
func checkRecords(t *testing.T, who, text string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) != appended {
		t.Fatalf("%s has %d records, and not %d:\n%s", who, len(lines), appended, text)
	}
	for i, line := range lines {
		f := strings.Split(line, "\t") // position, time, session, sequence, length
		if len(f) != 5 || f[3] != fmt.Sprint(i+1) || f[4] != "1024 bytes" {
			t.Errorf("%s: record %d is %q", who, i+1, line)
		}
	}
}
