package protocol

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// form is one kind of message. The tests go through all kinds.
type form struct {
	name    string
	kind    Kind
	free    []int // bytes that must be 0
	example []byte
	parse   func([]byte) Reason
}

func header(put func(dst []byte)) []byte {
	b := make([]byte, HeaderLen)
	for i := range b {
		b[i] = 0xcc // old contents
	}
	put(b)
	return b
}

func forms() []form {
	payload := []byte("123456789")
	data := header(func(b []byte) {
		PutData(b, &Data{Sequence: 7, Session: 0x1122334455667788, Position: 9, Stamp: 1_700_000_000_000_000_001, Length: uint32(len(payload)), Checksum: Checksum(payload)})
	})
	return []form{
		{"data", KindData, span(56, 60), append(data, payload...), func(b []byte) Reason { _, r := ParseData(b); return r }},
		{"progress", KindProgress, span(44, 60), header(func(b []byte) {
			PutProgress(b, &Progress{Sequence: 7, Position: 9, Limit: 71, Session: 0x1122334455667788, Status: Closing})
		}), func(b []byte) Reason { _, r := ParseProgress(b); return r }},
		{"request", KindRequest, append(span(28, 32), span(40, 60)...), header(func(b []byte) {
			PutRequest(b, &Request{ID: 5, RKey: 0xabcdef01, Offset: 1 << 40, Length: 65536, Address: 0x7f0011223344})
		}), func(b []byte) Reason { _, r := ParseRequest(b); return r }},
		{"response", KindResponse, span(16, 60), header(func(b []byte) { PutResponse(b, &Response{ID: 5, Status: OutOfRange}) }),
			func(b []byte) Reason { _, r := ParseResponse(b); return r }},
		{"grant", KindGrant, nil, exampleGrant(), func(b []byte) Reason { _, r := ParseGrant(b); return r }},
		{"commit", KindCommit, span(32, 60), header(func(b []byte) { PutCommit(b, &Commit{Epoch: 7, Committed: 9, Count: 3}) }),
			func(b []byte) Reason { _, r := ParseCommit(b); return r }},
		{"have", KindHave, nil, header(func(b []byte) {
			PutHave(b, &Have{Epoch: 7, Received: 12, Written: 11, Durable: 10, Limit: 256, Status: Closing, Count: 3})
		}), func(b []byte) Reason { _, r := ParseHave(b); return r }},
	}
}

// exampleGrant returns a grant with two credits: one for message 64, and one for the next seven
// messages.
func exampleGrant() []byte {
	b := make([]byte, HeaderLen+2*CreditLen)
	PutCredit(b[HeaderLen:], &Credit{Addr: 0x7f0011223344, RKey: 0xabcdef01, Slot: 63, Count: 1, Size: 2112})
	PutCredit(b[HeaderLen+CreditLen:], &Credit{Addr: 0x7f0022000000, RKey: 0xabcdef02, Count: 7, Size: 4096})
	PutGrant(b, &Grant{Progress: Progress{Sequence: 7, Position: 9, Limit: 71, Session: 0x1122334455667788}, Credits: 2, Checksum: Checksum(CreditsOf(b, 2)), First: 64})
	return b
}

func span(from, to int) (all []int) {
	for i := from; i < to; i++ {
		all = append(all, i)
	}
	return all
}

// changed returns a message with one byte changed. If sealed is set, the checksum matches again.
func changed(message []byte, at int, to byte, sealed bool) []byte {
	b := append([]byte(nil), message...)
	b[at] = to
	if sealed {
		seal(b)
	}
	return b
}

// TestBytes: the formats do not change, because other programs use them.
func TestBytes(t *testing.T) {
	want := map[string]string{
		"data": "754d5347 01010040 0000000000000007 1122334455667788 0000000000000009 17979cfe362a0001 00000009 e3069283 000000000000000000000000 " +
			"e632a941 313233343536373839",
		"progress": "7541434b 01020040 0000000000000007 0000000000000009 0000000000000047 1122334455667788 00000011 00000000000000000000000000000000 5da8e6fd",
		"request":  "75524551 01030040 00000005 abcdef01 0000010000000000 00010000 00000000 00007f0011223344 0000000000000000000000000000000000000000 98452e19",
		"response": "75525350 01040040 00000005 0000000b " + strings.Repeat("00", 44) + " abde495f",
		"grant": "75475254 01050040 0000000000000007 0000000000000009 0000000000000047 1122334455667788 00000000 00000002 2515e560 0000000000000040 4d46d3ce " +
			"00007f0011223344 abcdef01 0000003f 00000001 00000840 00007f0022000000 abcdef02 00000000 00000007 00001000",
		"commit": "75434d54 01060040 0000000000000007 0000000000000009 0000000000000003 " + strings.Repeat("00", 28) + " e8faa2b5",
		"have":   "75484156 01070040 0000000000000007 000000000000000c 000000000000000b 000000000000000a 0000000000000100 00000011 0000000000000003 433f58dc",
	}
	for _, f := range forms() {
		if got := hex.EncodeToString(f.example); got != strings.ReplaceAll(want[f.name], " ", "") {
			t.Errorf("%s is\n%s", f.name, got)
		}
	}
}

// TestEveryBitCounts: the parser notices a change of any bit of a header.
func TestEveryBitCounts(t *testing.T) {
	for _, f := range forms() {
		if r := f.parse(f.example); r != None {
			t.Fatalf("%s: %v", f.name, r)
		}
		for at := range HeaderLen {
			for bit := range 8 {
				if f.parse(changed(f.example, at, f.example[at]^1<<bit, false)) == None {
					t.Errorf("%s is taken with bit %d of byte %d changed", f.name, bit, at)
				}
			}
		}
	}
}

// TestRefusals: the parser refuses an invalid message even if its checksum is right.
func TestRefusals(t *testing.T) {
	for _, f := range forms() {
		for _, c := range []struct {
			message []byte
			want    Reason
		}{
			{nil, BadLength},
			{f.example[:HeaderLen-1], BadLength},
			{append(append([]byte(nil), f.example...), 0), BadLength},
			{changed(f.example, 0, 'U', true), BadMagic},
			{changed(f.example, 4, 2, true), BadVersion},
			{changed(f.example, 5, 9, true), BadKind},
			{changed(f.example, 7, 63, true), BadLength},
			{changed(f.example, 63, f.example[63]^1, false), BadHeader},
		} {
			if got := f.parse(c.message); got != c.want {
				t.Errorf("%s: % x is refused as %v, want %v", f.name, c.message, got, c.want)
			}
		}
		for _, at := range f.free {
			if got := f.parse(changed(f.example, at, 1, true)); got != BadReserved {
				t.Errorf("%s: byte %d is 1: %v", f.name, at, got)
			}
		}
		for _, other := range forms() {
			if got := f.parse(other.example[:HeaderLen]); (got == None) != (other.kind == f.kind && f.kind != KindData && f.kind != KindGrant) {
				t.Errorf("a %s as a %s: %v", other.name, f.name, got)
			}
			if k, r := KindOf(other.example); k != other.kind || r != None {
				t.Errorf("a %s is of kind %d, %v", other.name, k, r)
			}
		}
	}
	if _, r := KindOf(make([]byte, HeaderLen)); r != BadMagic {
		t.Error(r)
	}
	if _, r := KindOf(make([]byte, HeaderLen-1)); r != BadLength {
		t.Error(r)
	}
}

// TestValues: the parser refuses impossible values of fields.
func TestValues(t *testing.T) {
	data := func(d Data) Reason {
		_, r := ParseData(header(func(b []byte) { PutData(b, &d) }))
		return r
	}
	request := func(q Request) Reason {
		_, r := ParseRequest(header(func(b []byte) { PutRequest(b, &q) }))
		return r
	}
	response := header(func(b []byte) { PutResponse(b, &Response{}) })
	_, none := ParseResponse(response)
	_, later := ParseResponse(changed(response, 15, 200, true))
	_, big := ParseResponse(changed(response, 14, 1, true))
	_, session := ParseProgress(header(func(b []byte) { PutProgress(b, &Progress{}) }))
	grant := func(change func(*Grant)) Reason {
		b := exampleGrant()
		g, _ := ParseGrant(b)
		change(&g)
		PutGrant(b, &g)
		_, r := ParseGrant(b)
		return r
	}
	credit := func(c Credit) Reason {
		_, r := ParseCredit(header(func(b []byte) { PutCredit(b, &c) }))
		return r
	}
	for i, c := range []struct{ got, want Reason }{
		{grant(func(*Grant) {}), None},
		{grant(func(g *Grant) { g.Credits = 0 }), BadReserved},
		{grant(func(g *Grant) { g.Credits = 9 }), BadReserved},
		{grant(func(g *Grant) { g.Credits = 1 }), BadLength},
		{grant(func(g *Grant) { g.Credits = 3 }), BadLength},
		{grant(func(g *Grant) { g.First = 0 }), BadSequence},
		{grant(func(g *Grant) { g.Checksum++ }), BadPayload},
		{grant(func(g *Grant) { g.Session = 0 }), BadSession},
		{credit(Credit{Count: 1, Size: HeaderLen}), None},
		{credit(Credit{Size: HeaderLen}), BadReserved},
		{credit(Credit{Count: 1, Size: HeaderLen - 1}), BadLength},
		{credit(Credit{Count: 2, Size: HeaderLen, Slot: math.MaxUint32 - 1}), BadReserved},
		{credit(Credit{Count: 2, Size: HeaderLen, Slot: math.MaxUint32 - 2}), None},
		{credit(Credit{Count: 2, Size: HeaderLen, Addr: math.MaxUint64 - 127}), OutOfRange},
		{credit(Credit{Count: math.MaxUint32, Size: math.MaxUint32}), None},
		{data(Data{Session: 1, Sequence: 1}), None},
		{data(Data{Session: 1}), BadSequence},
		{data(Data{Sequence: 1}), BadSession},
		{data(Data{Session: 1, Sequence: 1, Length: 1}), BadLength},
		{data(Data{Session: 1, Sequence: 1, Length: math.MaxUint32}), BadLength},
		{request(Request{Length: 1}), None},
		{request(Request{}), OutOfRange},
		{request(Request{Length: 2, Offset: math.MaxUint64 - 1}), OutOfRange},
		{request(Request{Length: 2, Address: math.MaxUint64}), OutOfRange},
		{request(Request{Length: 1, Address: math.MaxUint64 - 1, Offset: math.MaxUint64 - 1}), None},
		{none, BadReserved}, {later, None}, {big, BadReserved}, {session, BadSession},
	} {
		if c.got != c.want {
			t.Errorf("case %d: %v, want %v", i, c.got, c.want)
		}
	}
}

func TestRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Uint64Min(1)
		payload := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload")
		d := Data{Sequence: number.Draw(t, "sequence"), Session: number.Draw(t, "session"), Stamp: number.Draw(t, "stamp"), Length: uint32(len(payload)), Checksum: Checksum(payload)}
		message := append(header(func(b []byte) { PutData(b, &d) }), payload...)
		d.Position = number.Draw(t, "position")
		SetRecord(message, d.Position, 0, 0)
		same(t, d, message, ParseData)
		same(t, d, message[:HeaderLen], ParseDataHeader)
		cut := rapid.IntRange(0, len(payload)).Draw(t, "cut")
		if got := ChecksumMore(Checksum(payload[:cut]), payload[cut:]); got != d.Checksum {
			t.Fatalf("the checksum in two parts is %x, in one %x", got, d.Checksum)
		}
		p := Progress{Sequence: number.Draw(t, "up to"), Position: number.Draw(t, "at"), Limit: number.Draw(t, "limit"), Session: d.Session, Status: Reason(rapid.Byte().Draw(t, "status"))}
		same(t, p, header(func(b []byte) { PutProgress(b, &p) }), ParseProgress)
		c := Credit{Addr: number.Draw(t, "memory") >> 1, RKey: rapid.Uint32().Draw(t, "rkey"), Slot: rapid.Uint32().Draw(t, "slot") >> 1, Count: rapid.Uint32Min(1).Draw(t, "count") >> 1,
			Size: rapid.Uint32Range(HeaderLen, 1<<20).Draw(t, "size")}
		c.Count = max(c.Count, 1)
		given := make([]byte, HeaderLen+CreditLen)
		PutCredit(given[HeaderLen:], &c)
		g := Grant{Progress: p, Credits: 1, Checksum: Checksum(CreditsOf(given, 1)), First: d.Sequence}
		PutGrant(given, &g)
		same(t, g, given, ParseGrant)
		same(t, c, given[HeaderLen:], ParseCredit)
		q := Request{ID: rapid.Uint32().Draw(t, "id"), RKey: rapid.Uint32().Draw(t, "rkey"), Offset: number.Draw(t, "offset") >> 1, Length: rapid.Uint32Min(1).Draw(t, "length"), Address: number.Draw(t, "address") >> 1}
		same(t, q, header(func(b []byte) { PutRequest(b, &q) }), ParseRequest)
		s := Response{ID: q.ID, Status: Reason(rapid.ByteMin(1).Draw(t, "why"))}
		same(t, s, header(func(b []byte) { PutResponse(b, &s) }), ParseResponse)
		m := Commit{Epoch: number.Draw(t, "epoch"), Committed: number.Draw(t, "committed"), Count: number.Draw(t, "count")}
		same(t, m, header(func(b []byte) { PutCommit(b, &m) }), ParseCommit)
		h := Have{Epoch: m.Epoch, Received: number.Draw(t, "received"), Limit: number.Draw(t, "limit"), Status: p.Status, Count: m.Count}
		h.Written = rapid.Uint64Max(h.Received).Draw(t, "written")
		h.Durable = rapid.Uint64Max(h.Received).Draw(t, "durable")
		same(t, h, header(func(b []byte) { PutHave(b, &h) }), ParseHave)
	})
}

func same[T any](t *rapid.T, want T, message []byte, parse func([]byte) (T, Reason)) {
	t.Helper()
	got, r := parse(message)
	if diff := cmp.Diff(want, got); r != None || diff != "" {
		t.Fatalf("%v\n%s", r, diff)
	}
}

// TestNothingIsAllocated: making and parsing messages does not allocate, because the data path does
// both.
func TestNothingIsAllocated(t *testing.T) {
	b, payload, given := make([]byte, HeaderLen), make([]byte, 1500), exampleGrant()
	var r Reason
	n := testing.AllocsPerRun(100, func() {
		PutData(b, &Data{Sequence: 1, Session: 1, Checksum: ChecksumMore(Checksum(payload), payload)})
		SetRecord(b, 3, 0, 0)
		_, r = ParseData(b)
		PutProgress(b, &Progress{Session: 1})
		_, r = ParseProgress(b)
		PutRequest(b, &Request{Length: 1})
		_, r = ParseRequest(b)
		PutResponse(b, &Response{Status: Busy})
		_, r = ParseResponse(b)
		PutCommit(b, &Commit{Epoch: 1})
		_, r = ParseCommit(b)
		PutHave(b, &Have{Epoch: 1})
		_, r = ParseHave(b)
		PutCredit(given[HeaderLen:], &Credit{Count: 1, Size: HeaderLen})
		PutGrant(given, &Grant{Progress: Progress{Session: 1}, Credits: 2, Checksum: Checksum(CreditsOf(given, 2)), First: 1})
		_, r = ParseGrant(given)
		_, r = ParseCredit(given[HeaderLen:])
		_, r = KindOf(b)
	})
	if n != 0 || r != None {
		t.Fatalf("%v allocations, %v", n, r)
	}
}

func TestReasons(t *testing.T) {
	words := map[string]bool{None.String(): true}
	for i, r := range Reasons() {
		if int(r) != i+1 || words[r.String()] || r.String() == "unknown" || r.Error() == "" || strings.Trim(r.String(), "abcdefghijklmnopqrstuvwxyz_") != "" {
			t.Errorf("reason %d is %q: %q", i+1, r, r.Error())
		}
		words[r.String()] = true
		if again, ok := ParseReason(r.String()); !ok || again != r {
			t.Errorf("%q is read as %v, %t", r, again, ok)
		}
	}
	if r, ok := ParseReason("no reason"); ok {
		t.Errorf("a word that is none is read as %v", r)
	}
	if last := Reasons()[len(Reasons())-1]; last != Changed {
		t.Errorf("the last one is %v", last)
	}
	if unknown := Reason(255); unknown.String() != "unknown" || unknown.Error() == "" {
		t.Error(unknown.String())
	}
	if err := fmt.Errorf("message 7: %w", BadPayload); !errors.Is(err, BadPayload) || errors.Is(err, BadHeader) {
		t.Error(err)
	}
}

func TestWords(t *testing.T) {
	for _, d := range []Durability{Received, Written, Durable} {
		if got, err := ParseDurability(d.String()); got != d || err != nil {
			t.Errorf("%v is read as %v, %v", d, got, err)
		}
	}
	for _, s := range []string{"", "unknown", "Durable", "flushed"} {
		if _, err := ParseDurability(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
	if Durability(0).String() != "unknown" || Durability(9).String() != "unknown" || RoleAppend.String() != "append" || RoleBlocks.String() != "blocks" || Role(0).String() != "unknown" {
		t.Error("words have changed")
	}
}

// TestOrigin: a relay's message carries its origin. As a record in a log, its session and sequence
// are those of the origin.
func TestOrigin(t *testing.T) {
	header := make([]byte, HeaderLen)
	want := Data{Sequence: 3, Session: 4, Origin: Origin{Session: 7, Sequence: 9}}
	PutData(header, &want)
	if d, why := ParseData(header); d != want || why != None || OriginOf(header) != want.Origin || FirstOrigin(header) != want.Origin {
		t.Errorf("%+v, %v", d, why)
	}
	SetRecord(header, 5, 0, 0)
	if d, why := ParseData(header); d != (Data{Sequence: 9, Session: 7, Position: 5}) || why != None || FirstOrigin(header) != want.Origin {
		t.Errorf("with a position: %+v, %v", d, why)
	}
	PutData(header, &Data{Sequence: 3, Session: 4, Origin: Origin{Session: 7}})
	if _, why := ParseData(header); why != BadSequence {
		t.Errorf("without a sequence: %v", why)
	}
}

// TestControl: a group's control record is what was put, and everything else is refused.
func TestControl(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Control{
			Leader: rapid.Uint32().Draw(t, "leader"), Epoch: uint64(rapid.Uint32Min(1).Draw(t, "epoch")),
			Members: rapid.SliceOfN(rapid.Uint32(), 1, MaxMembers).Draw(t, "members"),
		}
		b := make([]byte, MaxControlLen)
		b = b[:PutControl(b, &want, 7, 9)]
		d, why := ParseRecord(b)
		if wantData := (Data{Position: 7, Stamp: 9, Epoch: uint32(want.Epoch), Length: d.Length, Checksum: Checksum(b[HeaderLen:])}); why != None || d != wantData {
			t.Fatalf("%+v, %v", d, why)
		}
		got, why := ParseControl(b[HeaderLen:])
		if diff := cmp.Diff(want, got); diff != "" || why != None {
			t.Fatalf("%v\n%s", why, diff)
		}
		if _, why := ParseData(b); why == None {
			t.Fatal("a client may send it")
		}
		for n := range b[HeaderLen:] {
			if _, why := ParseControl(b[HeaderLen : HeaderLen+n]); why == None {
				t.Fatalf("%d bytes of it are taken", n)
			}
		}
	})
}

// TestRecordOfGroup: a record in a group's log has an epoch; a message of a client must not have one.
func TestRecordOfGroup(t *testing.T) {
	b := make([]byte, HeaderLen)
	PutData(b, &Data{Sequence: 3, Session: 4})
	SetRecord(b, 5, 8, 6)
	if d, why := ParseRecord(b); d != (Data{Sequence: 3, Session: 4, Position: 5, Owner: 8, Epoch: 6}) || why != None {
		t.Errorf("%+v, %v", d, why)
	}
	if _, why := ParseData(b); why != BadReserved {
		t.Errorf("a message with an epoch: %v", why)
	}
	for _, c := range []struct {
		d            Data
		owner, epoch uint64
		want         Reason
	}{
		{Data{Session: 4}, 0, 6, BadSequence},
		{Data{Sequence: 1}, 0, 0, BadSession},
		{Data{Sequence: 1}, 0, 6, BadSequence},
		{Data{}, 0, 0, BadSequence},
		{Data{}, 0, 6, None},
		{Data{}, 1, 6, BadSequence},
	} {
		PutData(b, &c.d)
		SetRecord(b, 5, c.owner, uint32(c.epoch))
		if _, why := ParseRecord(b); why != c.want {
			t.Errorf("%+v of owner %d and epoch %d: %v, want %v", c.d, c.owner, c.epoch, why, c.want)
		}
	}
}
