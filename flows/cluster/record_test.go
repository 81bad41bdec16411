package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// good is a record that is accepted.
func good() *Record {
	return &Record{
		Name: "storage-1.example", Instance: "a1", Version: "1.2.3", Capabilities: []string{"tls"},
		Devices: []Device{{Name: "roce:eth1", GIDs: []string{"10.0.0.2", "fd77::2"}}},
		Flows:   []Flow{{Name: "log", Kind: "rdma-storage", Device: "roce:eth1", Addresses: []string{"10.0.0.2:7471", "[fd77::2]:7471"}}},
		States:  []Flow{{Name: "log", Kind: "keys", Device: "roce:eth1", Addresses: []string{"10.0.0.2:7490"}}},
	}
}

// TestRecord: a record goes through its text unchanged, and keys of later releases do not matter.
func TestRecord(t *testing.T) {
	text, err := good().Encode()
	testenv.Must(t, err)
	more := strings.Replace(string(text), "{", `{"weather":"fine",`, 1)
	for _, one := range []string{string(text), more} {
		r, err := Parse("storage-1.example", []byte(one))
		if err != nil {
			t.Fatalf("%s: %v", one, err)
		}
		if again, err := r.Encode(); err != nil || string(again) != string(text) {
			t.Errorf("%s becomes %s, %v", text, again, err)
		}
	}
}

// TestRefused: a record that lies is refused with the reason.
func TestRefused(t *testing.T) {
	with := func(change func(*Record)) string {
		r := good()
		change(r)
		r.Format, r.Protocol = Format, protocol.Version
		return encoded(t, r)
	}
	address := func(text string) string {
		return with(func(r *Record) { r.Flows[0].Addresses[0] = text })
	}
	for _, c := range []struct {
		name, text string
		want       Reason
	}{
		{"no text", "", BadJSON},
		{"no JSON", "storage", BadJSON},
		{"a list", "[1]", BadJSON},
		{"another type", `{"format":1,"protocol":1,"name":7}`, BadJSON},
		{"too long", with(func(r *Record) { r.Version = strings.Repeat("1", MaxRecord) }), TooLong},
		{"another format", `{"format":2,"protocol":1,"name":"storage-1.example"}`, BadVersion},
		{"no format", `{}`, BadVersion},
		{"another protocol", fmt.Sprintf(`{"format":1,"protocol":%d,"name":"storage-1.example"}`, protocol.Version+1), BadVersion},
		{"another's name", with(func(r *Record) { r.Name = "storage-2" }), BadName},
		{"no name", with(func(r *Record) { r.Name = "" }), BadName},
		{"a long version", with(func(r *Record) { r.Version = strings.Repeat("1", 65) }), BadText},
		{"a version with a control character", with(func(r *Record) { r.Version = "1\x1b[2J" }), BadText},
		{"an instance with a line break", with(func(r *Record) { r.Instance = "1\n2" }), BadText},
		{"a capability with a control character", with(func(r *Record) { r.Capabilities = []string{"tls\x00"} }), BadText},
		{"many capabilities", with(func(r *Record) { r.Capabilities = make([]string, 33) }), TooMany},
		{"many devices", with(func(r *Record) { r.Devices = make([]Device, 65) }), TooMany},
		{"many flows", with(func(r *Record) { r.Flows = make([]Flow, 257) }), TooMany},
		{"many addresses", with(func(r *Record) { r.Flows[0].Addresses = make([]string, 17) }), TooMany},
		{"many GIDs", with(func(r *Record) { r.Devices[0].GIDs = make([]string, 65) }), TooMany},
		{"a device without a name", with(func(r *Record) { r.Devices[0].Name = "" }), BadName},
		{"a GID that is none", with(func(r *Record) { r.Devices[0].GIDs[0] = "fe80" }), BadGID},
		{"a GID with a zone", with(func(r *Record) { r.Devices[0].GIDs[0] = "fe80::1%eth0" }), BadGID},
		{"a flow with a slash", with(func(r *Record) { r.Flows[0].Name = "a/b" }), BadName},
		{"a flow twice", with(func(r *Record) { r.Flows = append(r.Flows, r.Flows[0]) }), BadName},
		{"many states", with(func(r *Record) { r.States = make([]Flow, 65) }), TooMany},
		{"a state with a slash", with(func(r *Record) { r.States[0].Name = "a/b" }), BadName},
		{"a state twice", with(func(r *Record) { r.States = append(r.States, r.States[0]) }), BadName},
		{"a state without an address", with(func(r *Record) { r.States[0].Addresses = nil }), BadAddress},
		{"a state on this host", with(func(r *Record) { r.States[0].Addresses[0] = "127.0.0.1:7490" }), BadAddress},
		{"a long kind", with(func(r *Record) { r.Flows[0].Kind = strings.Repeat("k", 33) }), BadText},
		{"no address", with(func(r *Record) { r.Flows[0].Addresses = nil }), BadAddress},
		{"a host's name", address("storage-1.example:7471"), BadAddress},
		{"no port", address("10.0.0.2"), BadAddress},
		{"port 0", address("10.0.0.2:0"), BadAddress},
		{"a large port", address("10.0.0.2:65536"), BadAddress},
		{"every address", address("0.0.0.0:7471"), BadAddress},
		{"every address of IPv6", address("[::]:7471"), BadAddress},
		{"a multicast group", address("239.1.1.1:7471"), BadAddress},
		{"this host", address("127.0.0.1:7471"), BadAddress},
		{"this host, IPv6", address("[::1]:7471"), BadAddress},
		{"this host, in IPv6", address("[::ffff:127.0.0.1]:7471"), BadAddress},
		{"a link", address("169.254.1.1:7471"), BadAddress},
		{"a link, IPv6", address("[fe80::1]:7471"), BadAddress},
		{"all hosts", address("255.255.255.255:7471"), BadAddress},
		{"a zone", address("[fe80::1%eth0]:7471"), BadAddress},
		{"a member of a group on this host", with(func(r *Record) { r.Flows[0].Group = []string{"127.0.0.1:7491"} }), BadAddress},
		{"many addresses of a member", with(func(r *Record) { r.Flows[0].Group = make([]string, 17) }), TooMany},
		{"another form", address("[fd77:0::2]:7471"), BadAddress},
	} {
		_, err := Parse("storage-1.example", []byte(c.text))
		refusal, _ := errors.AsType[*Refusal](err)
		if refusal == nil || refusal.Reason != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
			continue
		}
		if strings.ContainsAny(refusal.Error(), "\x00\x1b\n") || len(refusal.Error()) > 400 {
			t.Errorf("%s: the error has what a terminal must not get: %q", c.name, refusal.Error())
		}
	}
}

// FuzzParse: whatever is registered, there is no panic, and what is accepted can be registered again.
func FuzzParse(f *testing.F) {
	text, err := good().Encode()
	testenv.Must(f, err)
	f.Add(text)
	f.Add([]byte(`{"format":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Parse("storage-1.example", text)
		if err != nil {
			if _, is := errors.AsType[*Refusal](err); !is {
				t.Fatalf("%v is no refusal", err)
			}
			return
		}
		if _, err := r.Encode(); err != nil && len(text) < MaxRecord/2 {
			t.Fatalf("%q is accepted, and then not: %v", text, err)
		}
	})
}
