package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/group/election"
	"github.com/unifiedd/unifiedd/internal/newfile"
)

// StateFile keeps a member's vote and the members of its group, beside the manifest of its log. It has
// two slots, which are written in turn, each as two copies:
//
//	offset  bytes
//	     0      8  "UFDGROUP"
//	     8      4  version: 1
//	    12      4  length of the state
//	    16      8  generation: the slot with the highest one is valid
//	    24      4  number of the member
//	    28      4  CRC-32C of the bytes before, and of the state
//	    32         the state: see election.State.Append
//
// All numbers are little-endian. A StateFile belongs to one goroutine.
type StateFile struct {
	file       *os.File
	member     uint32
	generation uint64
}

// StateSuffix is appended to the name of the log.
const StateSuffix = ".group"

const (
	stateMagic   = "UFDGROUP"
	stateVersion = 1
	stateHeader  = 32
	stateApart   = 128 << 10
	stateCopy    = 64 << 10
	// maxState is the longest state.
	maxState = stateCopy - stateHeader
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	// ErrNoState means that a member has no state yet.
	ErrNoState = errors.New("there is no state of the group")
	// ErrLost means that a member must not vote any more.
	ErrLost    = errors.New("the member has lost its vote, and must not take part")
	errState   = fmt.Errorf("no copy of the group's state is intact: %w", ErrLost)
	errInvalid = errors.New("the state was written as it is, and is not valid")
	errMember  = errors.New("the state on the disk is that of another member")
)

// OpenState opens the state of a member. The error is ErrNoState if there is none.
func OpenState(d *newfile.Dir, name string, member uint32) (*StateFile, election.State, error) {
	f, err := d.OpenFile(name, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, election.State{}, ErrNoState
	}
	if err != nil {
		return nil, election.State{}, err
	}
	s := &StateFile{file: f, member: member}
	state, err := s.read()
	if err != nil {
		return nil, state, errors.Join(fmt.Errorf("read %s: %w", f.Name(), err), f.Close())
	}
	return s, state, nil
}

// MakeState makes the first state of a member, durably.
func MakeState(d *newfile.Dir, name string, member uint32, state election.State) (*StateFile, error) {
	beside := "." + name + ".new"
	if err := d.Remove(beside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := d.Create(beside, 0o640)
	if err != nil {
		return nil, err
	}
	s := &StateFile{file: f, member: member}
	if err = s.lock(); err == nil {
		_, err = f.WriteAt(make([]byte, stateApart+2*stateCopy), 0)
	}
	if err == nil {
		err = s.Write(state)
	}
	if err == nil {
		err = d.Rename(beside, name)
	}
	if err == nil {
		err = d.Sync()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make %s: %w", name, err), f.Close())
	}
	return s, nil
}

// lock keeps other daemons from using the file.
func (s *StateFile) lock() error {
	if err := unix.Flock(int(s.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return errors.New("another process uses it")
	}
	return nil
}

// read returns the newest state.
func (s *StateFile) read() (newest election.State, err error) {
	if err := s.lock(); err != nil {
		return newest, err
	}
	found := false
	var why error
	for _, at := range []int64{0, stateCopy, stateApart, stateApart + stateCopy} {
		b := make([]byte, stateCopy)
		n, err := s.file.ReadAt(b, at)
		if err != nil && err != io.EOF {
			return newest, err
		}
		state, generation, err := s.parse(b[:n])
		switch {
		case errors.Is(err, errMember), errors.Is(err, errInvalid): // an older state would be an older vote
			return newest, err
		case err != nil:
			why = err
		case !found || generation > s.generation:
			newest, s.generation, found = state, generation, true
		}
	}
	if !found {
		return newest, fmt.Errorf("%w (%w)", errState, why)
	}
	return newest, nil
}

// parse reads one copy.
func (s *StateFile) parse(b []byte) (state election.State, generation uint64, err error) {
	if len(b) < stateHeader || string(b[:8]) != stateMagic {
		return state, 0, errors.New("it has none")
	}
	length := le.Uint32(b[12:])
	if uint64(length) > uint64(len(b)-stateHeader) {
		return state, 0, errors.New("it is cut short")
	}
	text := b[stateHeader : stateHeader+length]
	if crc32.Update(crc32.Checksum(b[:28], castagnoli), castagnoli, text) != le.Uint32(b[28:]) {
		return state, 0, errors.New("its checksum is wrong")
	}
	if v := le.Uint32(b[8:]); v != stateVersion {
		return state, 0, fmt.Errorf("version %d is not known here", v)
	}
	if m := le.Uint32(b[24:]); m != s.member {
		return state, 0, fmt.Errorf("%w (%d, and this is %d)", errMember, m, s.member)
	}
	if state, err = election.ParseState(text); err != nil {
		err = fmt.Errorf("%w: %w", errInvalid, err)
	}
	return state, le.Uint64(b[16:]), err
}

// Write makes a state durable. After an error the old state or the new one is on the disk, and the
// member must stop.
func (s *StateFile) Write(state election.State) error {
	b, err := state.Append(make([]byte, stateHeader))
	if err != nil {
		return err
	}
	if len(b) > stateHeader+maxState {
		return fmt.Errorf("the group's state has %d bytes, and may have %d", len(b)-stateHeader, maxState)
	}
	copy(b, stateMagic)
	le.PutUint32(b[8:], stateVersion)
	le.PutUint32(b[12:], uint32(len(b)-stateHeader))
	le.PutUint64(b[16:], s.generation+1)
	le.PutUint32(b[24:], s.member)
	le.PutUint32(b[28:], crc32.Update(crc32.Checksum(b[:28], castagnoli), castagnoli, b[stateHeader:]))
	at := int64((s.generation+1)%2) * stateApart
	if _, err = s.file.WriteAt(b, at); err == nil {
		_, err = s.file.WriteAt(b, at+stateCopy)
	}
	if err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write the group's state: %w", err)
	}
	s.generation++
	return nil
}

// Generation returns how many states were written.
func (s *StateFile) Generation() uint64 { return s.generation }

// Close closes the file.
func (s *StateFile) Close() error { return s.file.Close() }
