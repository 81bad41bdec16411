package cluster

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/unifiedd/unifiedd/flows/protocol"
)

// Format is the version of the form of records.
const Format = 1

// Record is what a daemon registers of itself, as JSON.
type Record struct {
	Format   int    `json:"format"`   // [Format]
	Protocol int    `json:"protocol"` // version of the messages that its flows speak
	Name     string `json:"name"`     // of the daemon
	Instance string `json:"instance"` // differs each time the daemon is started
	Version  string `json:"version"`  // of the program
	// Capabilities are words: tls (connections are authenticated and encrypted), and others in later releases.
	Capabilities []string `json:"capabilities,omitempty"`
	Devices      []Device `json:"devices,omitempty"`
	Flows        []Flow   `json:"flows,omitempty"`
	// States are those that peers may read. Their kind is what they have: objects, keys or words.
	States []Flow `json:"states,omitempty"`
}

// Device is an RDMA device that flows use.
type Device struct {
	Name string   `json:"name"`
	GIDs []string `json:"gids,omitempty"` // as IPv6 or IPv4 addresses
}

// Flow is a flow, or a state, that others can connect to.
type Flow struct {
	Name      string   `json:"name"`
	Kind      string   `json:"kind"` // as in the status
	Device    string   `json:"device,omitempty"`
	Addresses []string `json:"addresses"` // IP address and TCP port, the best first; none of a witness
	// Group is where the flow, a member of a group, talks with the others: addresses of the same form.
	Group []string `json:"group,omitempty"`
}

// Limits of records.
const (
	// MaxRecord is the length of the longest record, in bytes.
	MaxRecord       = 64 << 10
	MaxGIDs         = 64 // of a device
	MaxFlows        = 256
	maxStates       = 64
	MaxAddresses    = 16 // of a flow
	maxCapabilities = 32
	maxDevices      = 64
	maxWord         = 32
	maxText         = 64
)

// Reason is why a record is refused.
type Reason string

// The reasons.
const (
	TooLong    Reason = "too_long"    // more bytes than MaxRecord
	BadJSON    Reason = "bad_json"    // it is not JSON of a record
	BadVersion Reason = "bad_version" // another format, or a protocol that flows here do not speak
	BadName    Reason = "bad_name"    // of the daemon, of a device, of a flow or of a state; or it is another daemon's record
	BadAddress Reason = "bad_address" // of a flow or of a state
	BadGID     Reason = "bad_gid"
	BadText    Reason = "bad_text" // a text is too long, or has characters that are not printed
	TooMany    Reason = "too_many" // devices, flows, states, addresses
)

// Reasons are all of them.
var Reasons = []Reason{TooLong, BadJSON, BadVersion, BadName, BadAddress, BadGID, BadText, TooMany}

// Refusal is the error for a record that is refused.
type Refusal struct {
	Reason Reason
	text   string
}

// Error implements error.
func (r *Refusal) Error() string { return string(r.Reason) + ": " + r.text }

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{reason, fmt.Sprintf(format, args...)}
}

// Encode returns the JSON of a record. It returns a *Refusal for a record that other daemons would refuse.
func (r *Record) Encode() ([]byte, error) {
	out := *r
	out.Format, out.Protocol = Format, protocol.Version
	text, err := json.Marshal(&out)
	if err != nil {
		return nil, err
	}
	if _, err := Parse(r.Name, text); err != nil {
		return nil, err
	}
	return text, nil
}

// Parse checks the record that is registered under a name. The error is a *Refusal. Keys that this release does not
// know are ignored.
func Parse(name string, text []byte) (*Record, error) {
	if len(text) > MaxRecord {
		return nil, refuse(TooLong, "%d bytes; at most %d are possible", len(text), MaxRecord)
	}
	var form struct{ Format, Protocol int }
	if err := json.Unmarshal(text, &form); err != nil {
		return nil, refuse(BadJSON, "%v", err)
	}
	switch {
	case form.Format != Format:
		return nil, refuse(BadVersion, "format %d; this release reads format %d", form.Format, Format)
	case form.Protocol != protocol.Version:
		return nil, refuse(BadVersion, "its flows speak version %d of the protocol, and those here version %d", form.Protocol, protocol.Version)
	}
	r := new(Record)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, refuse(BadJSON, "%v", err)
	}
	if err := r.check(name); err != nil {
		return nil, err
	}
	return r, nil
}

// check returns a *Refusal, or nil.
func (r *Record) check(name string) error {
	switch {
	case r.Name != name:
		return refuse(BadName, "the record under the name %.80q is of %.80q", name, r.Name)
	case ValidName(r.Name) != nil:
		return refuse(BadName, "%v", ValidName(r.Name))
	case !printable(r.Version, maxText) || !printable(r.Instance, maxText):
		return refuse(BadText, "version %.80q, instance %.80q", r.Version, r.Instance)
	case len(r.Capabilities) > maxCapabilities || len(r.Devices) > maxDevices || len(r.Flows) > MaxFlows || len(r.States) > maxStates:
		return refuse(TooMany, "%d capabilities, %d devices, %d flows, %d states; at most %d, %d, %d and %d are possible",
			len(r.Capabilities), len(r.Devices), len(r.Flows), len(r.States), maxCapabilities, maxDevices, MaxFlows, maxStates)
	}
	for _, word := range r.Capabilities {
		if !printable(word, maxWord) {
			return refuse(BadText, "capability %.80q", word)
		}
	}
	for i := range r.Devices {
		if err := r.Devices[i].check(); err != nil {
			return err
		}
	}
	if err := checkAll("flow", r.Flows); err != nil {
		return err
	}
	return checkAll("state", r.States)
}

// checkAll checks flows or states, which what says.
func checkAll(what string, all []Flow) error {
	once := map[string]bool{}
	for i := range all {
		f := &all[i]
		if once[f.Name] {
			return refuse(BadName, "%s %.80q is there twice", what, f.Name)
		}
		once[f.Name] = true
		if err := f.check(what); err != nil {
			return err
		}
	}
	return nil
}

func (d *Device) check() error {
	switch {
	case d.Name == "" || !printable(d.Name, maxText):
		return refuse(BadName, "device %.80q", d.Name)
	case len(d.GIDs) > MaxGIDs:
		return refuse(TooMany, "device %s has %d GIDs; at most %d are possible", d.Name, len(d.GIDs), MaxGIDs)
	}
	for _, gid := range d.GIDs {
		if a, err := netip.ParseAddr(gid); err != nil || a.Zone() != "" {
			return refuse(BadGID, "%.80q of device %s", gid, d.Name)
		}
	}
	return nil
}

// check checks a flow or a state, which what says.
func (f *Flow) check(what string) error {
	switch {
	case !validFlow(f.Name):
		return refuse(BadName, "%s %.80q", what, f.Name)
	case !printable(f.Kind, maxWord) || !printable(f.Device, maxText):
		return refuse(BadText, "kind %.80q, device %.80q of %s %s", f.Kind, f.Device, what, f.Name)
	case len(f.Addresses) == 0 && len(f.Group) == 0:
		return refuse(BadAddress, "%s %s has none", what, f.Name)
	case len(f.Addresses) > MaxAddresses || len(f.Group) > MaxAddresses:
		return refuse(TooMany, "%s %s has %d addresses; at most %d are possible", what, f.Name, max(len(f.Addresses), len(f.Group)), MaxAddresses)
	}
	for _, text := range slices.Concat(f.Addresses, f.Group) {
		if err := checkAddress(text); err != nil {
			return refuse(BadAddress, "%.80q of %s %s %v", text, what, f.Name, err)
		}
	}
	return nil
}

// checkAddress requires an address that a sender can connect to. A name of a host is none: who writes a record must
// not choose what this machine looks up.
func checkAddress(text string) error {
	at, err := netip.ParseAddrPort(text)
	switch a := at.Addr(); {
	case err != nil:
		return fmt.Errorf("is not an IP address with a port")
	case at.Port() == 0:
		return fmt.Errorf("has no port")
	case !Reachable(a):
		return fmt.Errorf("is not an address at which other hosts reach one")
	case at.String() != text:
		return fmt.Errorf("is not in its shortest form, %s", at)
	}
	return nil
}

// Reachable reports whether an address can be that of another host. Those of this host and of a single link are not: a
// record must not lead to services that only this host can reach.
func Reachable(a netip.Addr) bool {
	a = a.Unmap()
	return a.Zone() == "" && a.IsGlobalUnicast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// printable reports whether a text may be printed as it is.
func printable(text string, most int) bool {
	return len(text) <= most && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar })
}

// find returns a flow, or a state, with a name, or nil.
func find(all []Flow, name string) *Flow {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}
