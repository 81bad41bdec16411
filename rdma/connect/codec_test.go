package connect

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unifiedd/unifiedd/rdma"
)

func sample() Offer {
	return Offer{
		Parameters: Parameters{Transport: rdma.RC, QPN: 0x11, PSN: 0xccf920, GID: rdma.GIDOf(netip.MustParseAddr("10.99.0.1")), LID: 7,
			MTU: rdma.MTU1024, MaxReads: 16, MaxRemoteReads: 128, QKey: 0x11111111},
		Grants: []Grant{{Name: "data", RKey: 0x1393, Addr: 0x1000, Length: 1 << 33, Access: rdma.RemoteRead | rdma.RemoteWrite}},
		Hello:  []byte("size=4096"),
	}
}

// TestOfferBytes: the layout of an offer does not change. A change needs another Version.
func TestOfferBytes(t *testing.T) {
	o := sample()
	want := "02031080" + "0007" + "0000" + "00000011" + "00ccf920" + "11111111" + "00000000000000000000ffff0a630001" +
		"01" + "04" + hex.EncodeToString([]byte("data")) + "00000006" + "00001393" + "0000000000001000" + "0000000200000000" +
		"0009" + hex.EncodeToString([]byte("size=4096"))
	if got := hex.EncodeToString(AppendOffer(nil, &o)); got != want {
		t.Errorf("%s\n%s is the layout", got, want)
	}
}

func TestOfferThereAndBack(t *testing.T) {
	for name, change := range map[string]func(*Offer){
		"all":        func(*Offer) {},
		"no grants":  func(o *Offer) { o.Grants = nil },
		"no hello":   func(o *Offer) { o.Hello = nil },
		"LID alone":  func(o *Offer) { o.Parameters.GID = rdma.GID{} },
		"the limits": func(o *Offer) { o.Grants, o.Hello = manyGrants(MaxGrants), bytes.Repeat([]byte{7}, MaxHello) },
	} {
		o := sample()
		change(&o)
		b := AppendOffer(nil, &o)
		got, err := DecodeOffer(b)
		if err != nil || len(b) > MaxMessage {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
		if diff := cmp.Diff(o, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// manyGrants returns n grants with names of the maximum length.
func manyGrants(n int) (all []Grant) {
	for i := range n {
		name := strings.Repeat("x", MaxGrantName-1) + string(rune('0'+i))
		all = append(all, Grant{Name: name, Length: 1, Access: rdma.RemoteRead})
	}
	return all
}

func TestOfferRefused(t *testing.T) {
	for says, change := range map[string]func(*Offer){
		"none of RC":             func(o *Offer) { o.Parameters.Transport = 9 },
		"number 0x1 is not":      func(o *Offer) { o.Parameters.QPN = 1 },
		"number 0x1000000 is":    func(o *Offer) { o.Parameters.QPN = 1 << 24 },
		"sequence number":        func(o *Offer) { o.Parameters.PSN = 1 << 24 },
		"MTU number 0":           func(o *Offer) { o.Parameters.MTU = 0 },
		"MTU number 6":           func(o *Offer) { o.Parameters.MTU = 6 },
		"neither a GID":          func(o *Offer) { o.Parameters.GID, o.Parameters.LID = rdma.GID{}, 0 },
		"privileged":             func(o *Offer) { o.Parameters.QKey = 0x80010000 },
		"1 to 63 bytes":          func(o *Offer) { o.Grants[0].Name = "" },
		"name has 1 to 63":       func(o *Offer) { o.Grants[0].Name = strings.Repeat("n", 64) },
		"printable ASCII":        func(o *Offer) { o.Grants[0].Name = "a\x1b[2J" },
		"no memory":              func(o *Offer) { o.Grants[0].Length = 0 },
		"is no memory":           func(o *Offer) { o.Grants[0].Addr = 1<<64 - 1 },
		"rights 0x0 ":            func(o *Offer) { o.Grants[0].Access = 0 },
		"rights 0x1 ":            func(o *Offer) { o.Grants[0].Access = rdma.LocalWrite },
		"two grants":             func(o *Offer) { o.Grants = append(o.Grants, o.Grants[0]) },
		"65 grants are more":     func(o *Offer) { o.Grants = manyGrants(MaxGrants + 1) },
		"4097 bytes is longer":   func(o *Offer) { o.Hello = make([]byte, MaxHello+1) },
		"bytes 6 and 7 are 0x10": nil,
		"1 bytes follow":         nil,
	} {
		o := sample()
		if change != nil {
			change(&o)
		}
		b := AppendOffer(nil, &o)
		switch {
		case strings.HasPrefix(says, "bytes 6"):
			b[7] = 0x10
		case strings.HasPrefix(says, "1 bytes"):
			b = append(b, 0)
		}
		if got, err := DecodeOffer(b); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v, %v; want %q", got, err, says)
		}
	}
}

// TestOfferCutShort: DecodeOffer refuses each truncated offer.
func TestOfferCutShort(t *testing.T) {
	o := sample()
	b := AppendOffer(nil, &o)
	for n := range b {
		if got, err := DecodeOffer(b[:n]); err != errShort {
			t.Fatalf("%d of %d bytes: %+v, %v", n, len(b), got, err)
		}
	}
}

func TestReadMessageRefuses(t *testing.T) {
	header := func(version, kind byte, n uint16) string {
		return magic + string([]byte{version, kind, byte(n >> 8), byte(n)})
	}
	for _, c := range []struct {
		in, says string
		reason   Reason
	}{
		{"", "EOF", ReasonClosed},
		{header(1, 1, 4)[:7], "EOF", ReasonClosed},
		{header(1, 1, 4) + "abc", "EOF", ReasonClosed},
		{header(2, 1, 0), "speaks version 2", ReasonVersion},
		{header(1, 9, 0), "message of kind 9: there is no such kind", ReasonFormat},
		{header(1, 1, 65535), "offer of 65535 bytes is longer", ReasonFormat},
		{header(1, 3, 1), "ready of 1 bytes is longer than 0", ReasonFormat},
		{"GET / HTTP/1.1\r\n", `begins with "GET / HT"`, ReasonFormat},
		{"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS handshake", ReasonFormat},
		{"\x15\x03\x01\x00\x02\x02\x46", "TLS alert", ReasonFormat},
		{"0000:000012:456c8f:00000000000000000000ffff0a630001\x00", "pingpong", ReasonFormat},
		{"6.06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "perftest", ReasonFormat},
	} {
		_, _, err := readMessage(strings.NewReader(c.in))
		if err == nil || !strings.Contains(err.Error(), c.says) || reasonOf(err) != c.reason {
			t.Errorf("%q: %v (%v), want %q (%v)", c.in, err, reasonOf(err), c.says, c.reason)
		}
	}
}

// FuzzDecodeOffer: DecodeOffer accepts only offers within the limits, and encoding them again gives
// the same bytes.
func FuzzDecodeOffer(f *testing.F) {
	o := sample()
	f.Add(AppendOffer(nil, &o))
	o.Grants = manyGrants(3)
	f.Add(AppendOffer(nil, &o))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := DecodeOffer(b)
		if err != nil {
			return
		}
		if err := o.Check(); err != nil {
			t.Errorf("taken, and then refused: %v", err)
		}
		if got := AppendOffer(nil, &o); !bytes.Equal(got, b) {
			t.Errorf("%x\n%x came of it", b, got)
		}
	})
}

// FuzzReadMessage: for any input, readMessage returns one message or an error with a reason.
func FuzzReadMessage(f *testing.F) {
	var b bytes.Buffer
	o := sample()
	_ = writeMessage(&b, kindOffer, AppendOffer(nil, &o))
	f.Add(b.Bytes())
	f.Add([]byte(magic + "\x01\x04\x00\x02no"))
	f.Add([]byte("6.06\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		k, body, err := readMessage(bytes.NewReader(in))
		switch {
		case err != nil && (reasonOf(err) == ReasonNetwork || err.Error() == ""):
			t.Errorf("no reason: %v", err)
		case err == nil && len(body) > limits[k]:
			t.Errorf("%v of %d bytes", k, len(body))
		case err == nil && k == kindRefuse && refusal(body).Error() == "":
			t.Error("a refusal without a text")
		}
	})
}
