package nvmet

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/nvme/fabrics/dhchap"
)

// key returns 32 bytes, as a host has them and in the form of the configuration.
func key(t *testing.T, first byte) ([]byte, dhchap.Secret) {
	t.Helper()
	raw := bytes.Repeat([]byte{first, 1, 2, 3}, 8)
	s, err := dhchap.ParseSecret("DHHC-1:00:" + base64.StdEncoding.EncodeToString(binary.LittleEndian.AppendUint32(bytes.Clone(raw), crc32.ChecksumIEEE(raw))) + ":")
	testenv.Must(t, err)
	return raw, s
}

// prover is the host's side of an authentication on a queue, with SHA-512 and without a group.
type prover struct {
	*hostQueue
	key        []byte
	at         uint64 // memory for messages
	controller uint16
}

// auth returns one of the two commands, for n bytes.
func (p *prover) auth(kind uint8, n uint64) *message {
	return &message{opcode: fabrics.OpFabrics, fabrics: kind, data: p.keyed(p.at, n), words: [6]uint32{0xe9010100, uint32(n)}}
}

// tell sends a message to the session.
func (p *prover) tell(b []byte) {
	p.Helper()
	p.succeeds(p.auth(fabrics.AuthSend, uint64(copy(p.bytes(p.at, 4096), b))))
}

// hears asks for the session's next message.
func (p *prover) hears() []byte {
	p.Helper()
	p.succeeds(p.auth(fabrics.AuthReceive, 4096))
	return p.bytes(p.at, 4096)
}

// negotiate offers SHA-512 and no group.
func (p *prover) negotiate() {
	p.Helper()
	b := make([]byte, 72)
	b[4], b[7], b[8], b[10], b[11], b[12] = 9, 1, 1, 1, 1, 3
	p.tell(b)
}

// reply answers the challenge of the target.
func (p *prover) reply() {
	p.Helper()
	b := p.hears()
	if b[0] != 1 || b[1] != 1 || b[4] != 9 || b[6] != 64 || b[8] != 3 || b[9] != 0 {
		p.Fatalf("% x is no challenge", b[:16])
	}
	m := hmac.New(sha512.New, p.key)
	m.Write(b[16:80])
	m.Write(b[12:16])
	m.Write([]byte{9, 0, 0})
	m.Write([]byte("HostHost" + softHost + "\x00" + softNQN))
	r := make([]byte, 16+128)
	r[0], r[1], r[4], r[6] = 1, 2, 9, 64
	copy(r[16:], m.Sum(nil))
	p.tell(r)
}

// proves authenticates the host on the queue.
func (p *prover) proves() {
	p.Helper()
	p.negotiate()
	p.reply()
	if b := p.hears(); b[0] != 1 || b[1] != 3 || b[4] != 9 || b[8] != 0 {
		p.Fatalf("% x is no success", b[:16])
	}
}

// TestHostProves: the target executes no command on a queue before the host has authenticated on
// it. It ends the queue of a host that cannot authenticate.
func TestHostProves(t *testing.T) {
	r, s := newSoftRig(t)
	raw, secret := key(t, 7)
	v := r.serve(Config{Sessions: 8, Queues: 2, Depth: 32, Capsule: 4096, Subsystems: []Subsystem{{NQN: softNQN, Keys: map[string]dhchap.Keys{softHost: {Host: secret}},
		Namespaces: []Namespace{{ID: 1, Disk: r.zram(16 << 20)}}}}})
	at := s.room(4096)
	connect := func(id, controller uint16) *prover {
		t.Helper()
		q := s.open(id, fabrics.AdminDepth)
		got := q.succeeds(connectCommand(id, fabrics.AdminDepth, connectData(softHost, softNQN, controller)))
		if got.Result&^0xffff != fabrics.MustAuthenticate {
			t.Errorf("result %#x of a Connect", got.Result)
		}
		return &prover{q, raw, at, uint16(got.Result)}
	}
	refuses := func(p *prover, c *message, want fabrics.Status) {
		t.Helper()
		if got := p.ask(c); got.Status.Code() != want {
			t.Errorf("command %#x %#x: %v, not %v", c.opcode, c.fabrics, got.Status, want)
		}
	}
	unproven := uint64(0)
	ended := func(p *prover, why string) {
		t.Helper()
		unproven++
		p.gone(why)
		testenv.Wait(t, waitLimit, why+" to be counted", func() bool { return v.server.Stats().Unproven == unproven })
	}

	admin := connect(fabrics.AdminQueue, fabrics.AnyController)
	refuses(admin, enable, fabrics.AuthRequired)
	refuses(admin, &message{opcode: fabrics.OpKeepAlive}, fabrics.AuthRequired)
	admin.proves()
	admin.succeeds(enable)
	queue := connect(1, admin.controller)
	read := blocks(fabrics.OpRead, 1, 1, s.keyed(s.room(4096), 4096))
	refuses(queue, read, fabrics.AuthRequired)
	queue.proves()
	queue.succeeds(read)
	admin.proves() // the queue works during a second authentication
	queue.succeeds(read)

	wrong := *connect(2, admin.controller)
	wrong.key = bytes.Repeat([]byte{1}, 32)
	wrong.negotiate()
	wrong.reply()
	refuses(&wrong, read, fabrics.AuthRequired)
	if b := wrong.hears(); b[0] != 0 || b[1] != 0xf1 || b[7] != byte(dhchap.Failed) {
		t.Errorf("% x is no failure", b[:8])
	}
	ended(&wrong, "a wrong proof")

	odd := connect(2, admin.controller)
	other := odd.auth(fabrics.AuthSend, 72)
	other.words[0] = 0xea010100
	refuses(odd, other, fabrics.InvalidField)
	long := odd.auth(fabrics.AuthSend, 72)
	long.words[1] = 8192
	refuses(odd, long, fabrics.InvalidField)
	long.words[1] = 71
	refuses(odd, long, fabrics.InvalidSGLLength)
	odd.negotiate()
	refuses(odd, odd.auth(fabrics.AuthReceive, 64), fabrics.InvalidField)
	ended(odd, "no room for the challenge")

	early := connect(2, admin.controller)
	if b := early.hears(); b[1] != 0xf1 || b[7] != byte(dhchap.IncorrectMessage) {
		t.Errorf("% x is no failure", b[:8])
	}
	ended(early, "a message out of turn")

	stranger := s.open(fabrics.AdminQueue, fabrics.AdminDepth)
	if got := stranger.ask(connectCommand(fabrics.AdminQueue, fabrics.AdminDepth, connectData(softHost+"2", softNQN, fabrics.AnyController))); got.Status.Code() != fabrics.ConnectHostRefused {
		t.Errorf("a host without a key: %v", got.Status)
	}
	queue.succeeds(read)
	if st := v.server.Stats(); st.Ended != 0 || st.Unproven != unproven {
		t.Errorf("%+v", st)
	}
}

// TestChangeOfKeys: Change ends a host whose key was removed or replaced, and keeps a host whose
// key is the same. The old key is then invalid.
func TestChangeOfKeys(t *testing.T) {
	r, s := newSoftRig(t)
	raw, secret := key(t, 7)
	rawNext, next := key(t, 9)
	serves := func(keys map[string]dhchap.Keys) Subsystem {
		return Subsystem{NQN: softNQN, Keys: keys}
	}
	v := r.serve(Config{Sessions: 8, Queues: 2, Depth: 32, Capsule: 4096, Subsystems: []Subsystem{serves(map[string]dhchap.Keys{softHost: {Host: secret}})}})
	change := func(keys map[string]dhchap.Keys) (ended int) {
		t.Helper()
		if err := v.do(func() (err error) { ended, err = v.server.Change([]Subsystem{serves(keys)}); return err }); err != nil {
			t.Error(err)
		}
		return ended
	}
	at := s.room(4096)
	connect := func(raw []byte) *prover {
		t.Helper()
		q := s.open(fabrics.AdminQueue, fabrics.AdminDepth)
		got := q.succeeds(connectCommand(fabrics.AdminQueue, fabrics.AdminDepth, connectData(softHost, softNQN, fabrics.AnyController)))
		return &prover{q, raw, at, uint16(got.Result)}
	}
	alive := func(p *prover) { p.Helper(); p.succeeds(&message{opcode: fabrics.OpKeepAlive}) }

	admin, proving := connect(raw), connect(raw)
	admin.proves()
	admin.succeeds(enable)
	proving.negotiate()
	if n := change(map[string]dhchap.Keys{softHost: {Host: secret}, "nqn.2026-01.com.example:other": {Host: next}}); n != 0 {
		t.Errorf("%d hosts are ended though their keys are the same", n)
	}
	alive(admin)
	if n := change(map[string]dhchap.Keys{softHost: {Host: next}}); n != 2 {
		t.Errorf("%d hosts are ended, not the one that has proved that it has the old key and the one that is about to", n)
	}
	admin.gone("another key")
	proving.gone("another key")

	old := connect(raw)
	old.negotiate()
	old.reply()
	if b := old.hears(); b[0] != 0 || b[1] != 0xf1 || b[7] != byte(dhchap.Failed) {
		t.Errorf("the old key: % x is no failure", b[:8])
	}
	admin = connect(rawNext)
	admin.proves()
	admin.succeeds(enable)
	alive(admin)
	if n := change(map[string]dhchap.Keys{}); n != 1 {
		t.Errorf("%d hosts are ended, whose key is gone", n)
	}
	admin.gone("no key")
	q := s.open(fabrics.AdminQueue, fabrics.AdminDepth)
	if got := q.ask(connectCommand(fabrics.AdminQueue, fabrics.AdminDepth, connectData(softHost, softNQN, fabrics.AnyController))); got.Status.Code() != fabrics.ConnectHostRefused {
		t.Errorf("a host without a key: %v", got.Status)
	}
}
