package doctor

import (
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
)

// grouped returns the configuration of a member whose own address is of this machine.
func grouped() *config.Config {
	c := config.Default()
	f := config.NewFlowOf(config.KindRDMAStorage, "orders")
	f.To.Replicas = &config.Replicas{Name: "orders", Self: "a", Suspect: time.Minute, Members: []config.Replica{
		{Name: "a", Address: "127.0.0.1:7491", Clients: "127.0.0.1:7471"},
		{Name: "b", Address: "localhost:7492", Clients: "192.0.2.2:7471", Paths: []config.ReplicaPath{{Address: "198.51.100.2:7491", Clients: "localhost:7472"}}},
		{Name: "c", Address: "unifiedd.invalid:7491", Clients: "192.0.2.3:7471"}, // RFC 6761: never has an address
		{Name: "w", Address: "192.0.2.4:7491", Witness: true},
	}}
	c.Flows = []config.Flow{f}
	return c
}

// TestGroupAddresses: the own addresses must be of this machine, and names of other members must have an
// address.
func TestGroupAddresses(t *testing.T) {
	c := grouped()
	var r Report
	r.addGroups(newNeeds(Options{Config: c}))
	const subject = "group of flow orders"
	for name, want := range map[string]struct {
		State
		text string
	}{
		"to.group.members[0].address":          {OK, "can be listened at"},
		"to.group.members[0].clients":          {OK, "can be listened at"},
		"to.group.members[1].address":          {OK, "localhost:7492 is "},
		"to.group.members[1].clients":          {OK, "is an IP address"},
		"to.group.members[1].paths[0].address": {OK, "is an IP address"},
		"to.group.members[1].paths[0].clients": {OK, "localhost:7472 is "},
		"to.group.members[2].address":          {Warn, "DNS or /etc/hosts"},
		"to.group.members[3].address":          {OK, "is an IP address"},
		"to.group.suspect":                     {OK, "the longest pause of a thread within"},
	} {
		expect(t, name, of(t, &r, subject, name), want.State, want.text)
	}
	for _, s := range r.Sections {
		if i := slices.IndexFunc(s.Checks, func(c Check) bool { return c.Name == "to.group.members[3].clients" }); i >= 0 {
			t.Errorf("a witness has no address for clients: %+v", s.Checks[i])
		}
	}
	c.Flows[0].To.Replicas.Self = "c" // whose address for clients is not here
	r = Report{}
	r.addGroups(newNeeds(Options{Config: c}))
	expect(t, "elsewhere", of(t, &r, subject, "to.group.members[2].clients"), Fail, "another member as self")
}

// TestSuspect: the doctor warns if the longest pause reaches suspect, and names a value that is longer.
func TestSuspect(t *testing.T) {
	p := pauses{longest: 61 * time.Millisecond, measured: time.Second}
	expect(t, "long", p.judge(100*time.Millisecond), OK, "the longest pause of a thread within 1s was 61ms")
	expect(t, "just", p.judge(61*time.Millisecond), Warn, "such as 122ms")
	expect(t, "short", p.judge(5*time.Millisecond), Warn, "set to.group.suspect to more")
	p.longest = 2 * time.Millisecond
	expect(t, "small", p.judge(time.Millisecond), Warn, "such as 4ms")
}
