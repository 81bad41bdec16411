package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Snapshot is what a file says. Times are of the clock of the machine that wrote it.
type Snapshot struct {
	Flow    string    `json:"flow"`
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Alive   bool      `json:"alive"` // the process still runs
	Started time.Time `json:"started"`
	Step    Step      `json:"step"`
	Doing   string    `json:"doing"` // the step as a text
	Round   time.Time `json:"round"` // when the last round began
	Rounds  uint64    `json:"rounds"`
	Packets uint64    `json:"packets"` // received since the flow began
	Bytes   uint64    `json:"bytes"`
	Events  []Event   `json:"events"` // the last rounds, oldest first
	Notes   []Note    `json:"notes"`  // oldest first
}

// Event is a round that received something, or that ended otherwise than the one before.
type Event struct {
	Time    time.Time     `json:"time"`
	Packets uint32        `json:"packets"`
	Bytes   uint32        `json:"bytes"`
	Since   time.Duration `json:"since_ns"` // the round before began; 4.29 s at most
	Held    uint32        `json:"held"`     // frames in flight after the round
	Blocked bool          `json:"blocked"`
	Paused  bool          `json:"paused"`
	Failing bool          `json:"failing"`
}

// Note is something that happens seldom.
type Note struct {
	Time  time.Time `json:"time"`
	Kind  string    `json:"kind"`
	Value uint64    `json:"value,omitempty"`
	Text  string    `json:"text"`
}

// order is the byte order of files.
var order = binary.NativeEndian

// mostFile is the length of the longest file.
var mostFile = fileLen(mostRounds, notesKept)

// Read reads the file of a flow. Its bytes are checked: it may be of another release, or damaged.
func Read(path string) (*Snapshot, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("read %s: %w", path, ErrNotTrace), err)
	}
	b, err := io.ReadAll(io.LimitReader(f, mostFile+1))
	if err != nil {
		return nil, err
	}
	s, err := parse(b, func() ([]byte, error) { // what was published meanwhile
		again := make([]byte, headerLen)
		_, err := f.ReadAt(again, 0)
		return again, err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

// ErrNotTrace is the error of a file that is not one of a flight recorder.
var ErrNotTrace = errors.New("this is not a file of the flight recorder, or of another release")

// parse reads a file's bytes. again returns the header once more: records that may have been overwritten while b was
// read are left out.
func parse(b []byte, again func() ([]byte, error)) (*Snapshot, error) {
	if int64(len(b)) < fileLen(0, 0) || string(b[:8]) != magic {
		return nil, ErrNotTrace
	}
	rounds, notes := order.Uint32(b[8:]), order.Uint32(b[12:])
	nameLen, versionLen := order.Uint16(b[20:]), order.Uint16(b[22:])
	if rounds > mostRounds || notes > notesKept || rounds == 0 || notes == 0 || rounds&(rounds-1) != 0 || nameLen > textLen || versionLen > textLen || int64(len(b)) != fileLen(rounds, notes) {
		return nil, ErrNotTrace
	}
	after, err := again()
	if err != nil {
		return nil, err
	}
	l := b[liveAt:]
	s := &Snapshot{
		Flow: string(b[nameAt : nameAt+int(nameLen)]), Version: string(b[versionAt : versionAt+int(versionLen)]), PID: int(order.Uint32(b[16:])),
		Started: instant(b[24:]), Step: Step(order.Uint64(l)), Round: instant(l[8:]), Rounds: order.Uint64(l[16:]), Packets: order.Uint64(l[24:]), Bytes: order.Uint64(l[32:]),
	}
	s.Doing = s.Step.String()
	first, end := kept(order.Uint64(l[40:]), order.Uint64(after[liveAt+40:]), uint64(rounds))
	for n := first; n < end; n++ {
		s.Events = append(s.Events, event(b[headerLen+int(n%uint64(rounds))*roundLen:]))
	}
	first, end = kept(order.Uint64(b[notedAt:]), order.Uint64(after[notedAt:]), uint64(notes))
	for n := first; n < end; n++ {
		s.Notes = append(s.Notes, note(b[headerLen+int(rounds)*roundLen+int(n%uint64(notes))*noteLen:]))
	}
	return s, nil
}

// kept returns the numbers of records that are intact: before are those when the ring was read, and after is how
// many there were when it had been read. One more may be half written, also if its writer was killed.
func kept(before, after, ring uint64) (first, end uint64) {
	next := max(before, after) + 1
	return min(next-min(next, ring), before), before
}

func instant(b []byte) time.Time { return time.Unix(0, int64(order.Uint64(b))) }

func event(b []byte) Event {
	flags := order.Uint32(b[24:])
	return Event{
		Time: instant(b), Packets: order.Uint32(b[8:]), Bytes: order.Uint32(b[12:]), Since: time.Duration(order.Uint32(b[16:])), Held: order.Uint32(b[20:]),
		Blocked: flags&Blocked != 0, Paused: flags&Paused != 0, Failing: flags&Failing != 0,
	}
}

func note(b []byte) Note {
	n := min(int(order.Uint16(b[18:])), noteText)
	return Note{Time: instant(b), Kind: Kind(order.Uint16(b[16:])).String(), Value: order.Uint64(b[8:]), Text: strings.ToValidUTF8(string(b[24:24+n]), "?")}
}

// ReadAll reads the files of a directory, in the order of the flows' names. A file that cannot be read is in the
// error, and the others are read.
func ReadAll(dir string) ([]*Snapshot, error) {
	alive, err := inUse(dir)
	if err != nil {
		return nil, err
	}
	names, err := filesOf(dir)
	if err != nil {
		return nil, err
	}
	var all []*Snapshot
	var errs []error
	for _, name := range names {
		s, err := Read(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.Alive = alive
		all = append(all, s)
	}
	return all, errors.Join(errs...)
}

// filesOf returns the paths of a directory's files, in the order of their names.
func filesOf(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), Suffix) && e.Type().IsRegular() {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, err
}

// inUse reports whether the daemon of a directory lives.
func inUse(dir string) (bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close() // and so unlocks
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
