package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/unifiedd/unifiedd/flows/group"
	"github.com/unifiedd/unifiedd/flows/group/election"
)

const (
	// maxFrame is the largest length of a frame in bytes, without length and checksum. A state has 64 KiB
	// at most.
	maxFrame = 128 << 10
	// maxEntries is how many entries a message may have. A state has some dozens.
	maxEntries = 256

	frameHeader = 8
	version     = 1
	magic       = "uGRP"
	// maxName is the largest length of a group's name.
	maxName = 63
)

// The kinds of frames. Those of messages are the kinds of package group.
const kindHello = 32

var (
	be         = binary.BigEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	errFrame = errors.New("it is not a frame of a group")
)

// hello says who dials, whom it expects, and of which group they are members.
type hello struct {
	from, to uint32
	name     string
}

func (h *hello) append(b []byte) []byte {
	b = append(b, kindHello)
	b = append(b, magic...)
	b = append(b, version)
	b = be.AppendUint32(b, h.from)
	b = be.AppendUint32(b, h.to)
	return append(b, h.name...)
}

func parseHello(b []byte) (h hello, err error) {
	const fixed = 1 + len(magic) + 1 + 8
	switch {
	case len(b) < fixed || b[0] != kindHello || string(b[1:5]) != magic:
		return h, fmt.Errorf("%w: the peer does not say hello as a member of a group", errFrame)
	case b[5] != version:
		return h, fmt.Errorf("the peer has version %d of the messages between members, and this member version %d: use the same release", b[5], version)
	case len(b) > fixed+maxName:
		return h, fmt.Errorf("%w: the name of the group has more than %d bytes", errFrame, maxName)
	}
	return hello{be.Uint32(b[6:]), be.Uint32(b[10:]), string(b[fixed:])}, nil
}

// appendMessage appends the body of a frame with a message.
func appendMessage(b []byte, m *group.Message) ([]byte, error) {
	b = append(b, byte(m.Kind))
	b = be.AppendUint64(b, m.Epoch)
	switch m.Kind {
	case group.KindElection:
		b = appendPlace(b, m.End)
		return proto.MarshalOptions{}.MarshalAppend(b, m.Election)
	case group.KindReport:
		b = be.AppendUint64(b, m.Serial)
		b = appendPlace(b, m.Log.End)
		b = be.AppendUint64(b, m.Log.Committed)
		b = append(b, 0)
		if m.Log.Recovering {
			b[len(b)-1] = 1
		}
		for _, s := range m.Log.Table {
			b = appendPlace(b, group.Place{Epoch: s.Epoch, Position: s.First})
		}
	case group.KindFollow:
		b = be.AppendUint64(b, m.Serial)
		b = be.AppendUint64(b, m.After)
		b = be.AppendUint64(b, m.Until)
	case group.KindKnown:
		b = append(b, byte(m.Known), 0)
		if m.Voter {
			b[len(b)-1] |= 1
		}
		if m.Needed {
			b[len(b)-1] |= 2
		}
	case group.KindRequest:
		b = be.AppendUint64(b, m.Serial)
		b = append(b, byte(m.Request))
		b = be.AppendUint32(b, m.Add)
		b = be.AppendUint32(b, m.Remove)
	case group.KindReply:
		b = appendReply(b, m)
	}
	return b, nil
}

func appendReply(b []byte, m *group.Message) []byte {
	text := m.Refusal[:min(len(m.Refusal), group.MaxRefusal)]
	b = be.AppendUint64(b, m.Serial)
	b = be.AppendUint16(b, uint16(len(text)))
	b = append(b, text...)
	for _, one := range m.Members {
		b = be.AppendUint32(b, one.Member)
		b = append(b, 0)
		if one.Away {
			b[len(b)-1] = 1
		}
		b = be.AppendUint64(b, one.Safe)
	}
	return b
}

func appendPlace(b []byte, p group.Place) []byte {
	return be.AppendUint64(be.AppendUint64(b, p.Epoch), p.Position)
}

// fields reads numbers from the front of a frame.
type fields struct {
	b   []byte
	bad bool // it was too short
}

func (f *fields) uint64() uint64 {
	if len(f.b) < 8 {
		f.bad = true
		return 0
	}
	v := be.Uint64(f.b)
	f.b = f.b[8:]
	return v
}

func (f *fields) place() group.Place { return group.Place{Epoch: f.uint64(), Position: f.uint64()} }

// parseMessage reads the body of a frame. From and To are not in it: the connection says them.
func parseMessage(b []byte) (m group.Message, err error) {
	if len(b) == 0 {
		return m, fmt.Errorf("%w: it is empty", errFrame)
	}
	f := fields{b: b[1:]}
	m.Kind, m.Epoch = group.Kind(b[0]), f.uint64()
	switch m.Kind {
	case group.KindElection:
		m.End = f.place()
		if f.bad {
			break
		}
		m.Election = &election.Message{}
		if err := proto.Unmarshal(f.b, m.Election); err != nil {
			return m, fmt.Errorf("%w: a message of an election: %w", errFrame, err)
		}
		f.b = nil
		if err := checkElection(m.Election); err != nil {
			return m, err
		}
	case group.KindSeal, group.KindAsk:
	case group.KindKnown:
		if len(f.b) != 2 || f.b[0] < byte(group.KnowsNothing) || f.b[0] > byte(group.KnowsEpochs) || f.b[1] > 3 {
			return m, fmt.Errorf("%w: an answer says what no member can know", errFrame)
		}
		m.Known, m.Voter, m.Needed, f.b = group.Known(f.b[0]), f.b[1]&1 != 0, f.b[1]&2 != 0, nil
	case group.KindReport:
		err = parseReport(&f, &m)
	case group.KindFollow:
		m.Serial, m.After, m.Until = f.uint64(), f.uint64(), f.uint64()
	case group.KindRequest:
		err = parseRequest(&f, &m)
	case group.KindReply:
		err = parseReply(&f, &m)
	default:
		return m, fmt.Errorf("%w: kind %d is not known", errFrame, m.Kind)
	}
	if err == nil && (f.bad || len(f.b) > 0) {
		err = fmt.Errorf("%w: kind %d with %d bytes", errFrame, m.Kind, len(b))
	}
	return m, err
}

func parseReport(f *fields, m *group.Message) error {
	m.Serial, m.Log.End, m.Log.Committed = f.uint64(), f.place(), f.uint64()
	if f.bad || len(f.b) == 0 || f.b[0] > 1 {
		return fmt.Errorf("%w: a report is cut short", errFrame)
	}
	m.Log.Recovering = f.b[0] == 1
	f.b = f.b[1:]
	for len(f.b) > 0 && !f.bad {
		p := f.place()
		m.Log.Table = append(m.Log.Table, group.Span{Epoch: p.Epoch, First: p.Position})
	}
	return nil
}

func parseRequest(f *fields, m *group.Message) error {
	m.Serial = f.uint64()
	if f.bad || len(f.b) != 9 || f.b[0] < byte(group.RequestStatus) || f.b[0] > byte(group.RequestChange) {
		return fmt.Errorf("%w: a request asks for what no member can ask for", errFrame)
	}
	m.Request, m.Add, m.Remove, f.b = group.Request(f.b[0]), be.Uint32(f.b[1:]), be.Uint32(f.b[5:]), nil
	return nil
}

// aboutMember is the length of what a reply says about a member.
const aboutMember = 13

func parseReply(f *fields, m *group.Message) error {
	m.Serial = f.uint64()
	if f.bad || len(f.b) < 2 {
		return fmt.Errorf("%w: a reply is cut short", errFrame)
	}
	n := int(be.Uint16(f.b))
	if f.b = f.b[2:]; n > group.MaxRefusal || len(f.b) < n || (len(f.b)-n)%aboutMember != 0 {
		return fmt.Errorf("%w: a reply has a text of %d bytes, and %d behind its length", errFrame, n, len(f.b))
	}
	m.Refusal, f.b = string(f.b[:n]), f.b[n:]
	for ; len(f.b) > 0; f.b = f.b[aboutMember:] {
		if f.b[4] > 1 {
			return fmt.Errorf("%w: a reply says of a member what cannot be", errFrame)
		}
		m.Members = append(m.Members, group.Progressed{Member: be.Uint32(f.b), Away: f.b[4] == 1, Safe: be.Uint64(f.b[5:])})
	}
	return nil
}

// checkElection refuses messages that raft takes only from itself, and those that it believes though they
// cannot be right: entries would be durable before they are looked at.
func checkElection(m *election.Message) error {
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgSnap, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp,
		raftpb.MsgTimeoutNow, raftpb.MsgPreVote, raftpb.MsgPreVoteResp:
	default:
		return fmt.Errorf("%w: an election has no message %v between members", errFrame, m.GetType())
	}
	if m.GetTerm() == 0 {
		return fmt.Errorf("%w: message %v of an election has no epoch", errFrame, m.GetType())
	}
	if n := len(m.GetEntries()); n > maxEntries || len(m.GetResponses()) > 0 || n > 0 && m.GetType() != raftpb.MsgApp {
		return fmt.Errorf("%w: message %v of an election has %d entries and %d answers", errFrame, m.GetType(), n, len(m.GetResponses()))
	}
	term := m.GetLogTerm()
	for i, e := range m.GetEntries() {
		if e.GetIndex() != m.GetIndex()+1+uint64(i) || e.GetTerm() < term || e.GetTerm() > m.GetTerm() {
			return fmt.Errorf("%w: entry %d of epoch %d does not follow", errFrame, e.GetIndex(), e.GetTerm())
		}
		term = e.GetTerm()
		switch e.GetType() {
		case raftpb.EntryNormal:
		case raftpb.EntryConfChangeV2:
			if err := proto.Unmarshal(e.GetData(), &raftpb.ConfChangeV2{}); err != nil {
				return fmt.Errorf("%w: entry %d is no change of the members: %w", errFrame, e.GetIndex(), err)
			}
		default:
			return fmt.Errorf("%w: entry %d has kind %v", errFrame, e.GetIndex(), e.GetType())
		}
	}
	return nil
}

// frame puts length and checksum in front of a body, for which b has room at its beginning.
func frame(b []byte) []byte {
	body := b[frameHeader:]
	be.PutUint32(b, uint32(len(body)))
	be.PutUint32(b[4:], crc32.Checksum(body, castagnoli))
	return b
}

// readFrame reads the body of the next frame into a buffer that grows when needed.
func readFrame(r io.Reader, buffer []byte, most uint32) ([]byte, error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return buffer, err
	}
	n := be.Uint32(head[:])
	if n > most {
		return buffer, fmt.Errorf("%w: it has %d bytes, and may have %d", errFrame, n, most)
	}
	if uint32(cap(buffer)) < n {
		buffer = make([]byte, n)
	}
	buffer = buffer[:n]
	if _, err := io.ReadFull(r, buffer); err != nil {
		return buffer, err
	}
	if crc32.Checksum(buffer, castagnoli) != be.Uint32(head[4:]) {
		return buffer, fmt.Errorf("%w: its checksum is wrong", errFrame)
	}
	return buffer, nil
}
