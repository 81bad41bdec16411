package transfer

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/nvme"
)

// source is the file or block device that is sent.
type source struct {
	path   string
	file   *os.File
	target *nvme.Target
	device bool
	number uint64 // of a device
	size   uint64
	mode   uint32
	mtime  unix.Timespec // time of modification
	holes  bool
	state  sourceState
}

// sourceState is what changes when somebody writes a source. It is compared as a whole.
type sourceState struct {
	size           uint64
	inode, fs      uint64
	mtime, ctime   int64  // of a file
	writes, blocks uint64 // of a device: write requests and sectors, also of discards
	sequence       uint64 // of a device: a number that no other disk has had since the machine was started
}

// ctimeTick is longer than the time for which the kernel may give several changes the same time
// (current_time in fs/inode.c: a jiffy of at most 10 ms).
const ctimeTick = 20 * time.Millisecond

// openSource opens a file or device for reading.
func openSource(path string) (s *source, err error) {
	s = &source{path: path}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open source %s: %w", path, err), s.close())
	}
	return s, nil
}

var errNoSource = errors.New("it is neither a file nor a block device")

func (s *source) open() (err error) {
	if s.file, err = os.OpenFile(s.path, os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil { // the open of a pipe would wait
		return errors.Unwrap(err)
	}
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	switch kind := info.Mode() & (fs.ModeType | fs.ModeCharDevice); kind {
	case 0:
	case fs.ModeDevice:
		s.device = true
	default:
		return errNoSource
	}
	s.mode = uint32(info.Mode().Perm())
	if s.state, err = s.look(); err != nil {
		return err
	}
	for range 2 { // a change from now on has another time
		if ahead := time.Until(time.Unix(0, s.state.ctime).Add(ctimeTick)); ahead > 0 {
			time.Sleep(min(ahead, ctimeTick))
			if s.state, err = s.look(); err != nil {
				return err
			}
		}
	}
	if s.target, err = nvme.OpenTarget(nvme.TargetConfig{Path: fmt.Sprintf("/proc/self/fd/%d", s.file.Fd()), ReadOnly: true, Buffered: true}); err != nil {
		return err
	}
	s.size = s.target.Size()
	s.holes = !s.device && s.sparse()
	if s.size > maxSize {
		return fmt.Errorf("%d bytes are more than %d", s.size, uint64(maxSize))
	}
	if !s.device && s.size != s.state.size {
		return protocol.Changed
	}
	s.state.size = s.size
	return nil
}

func (s *source) close() (err error) {
	if s.target != nil {
		err = s.target.Close()
	}
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
	}
	s.target, s.file = nil, nil
	return err
}

// look reads the state of the source.
func (s *source) look() (now sourceState, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(s.file.Fd()), &st); err != nil {
		return now, err
	}
	s.mtime = st.Mtim
	if !s.device {
		var fs unix.Statfs_t
		if err := unix.Fstatfs(int(s.file.Fd()), &fs); err != nil {
			return now, err
		}
		return sourceState{size: uint64(st.Size), inode: st.Ino, fs: uint64(uint32(fs.Fsid.Val[0]))<<32 | uint64(uint32(fs.Fsid.Val[1])), mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano()}, nil
	}
	s.number = st.Rdev
	now = sourceState{size: s.size, inode: st.Rdev}
	dir := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	now.sequence = sequenceOf(dir)
	now.writes, now.blocks = writesOf(dir)
	return now, nil
}

// sequenceOf reads diskseq of a disk, or of the disk that a partition is on (Documentation/ABI/stable/sysfs-block).
// It is 0 if the kernel has none.
func sequenceOf(dir string) (n uint64) {
	for _, path := range []string{"diskseq", "../diskseq"} {
		if text, err := os.ReadFile(filepath.Join(resolved(dir), path)); err == nil {
			_, _ = fmt.Sscan(string(text), &n) // the kernel writes a number
			return n
		}
	}
	return 0
}

// resolved returns the directory that a link leads to.
func resolved(dir string) string {
	if to, err := filepath.EvalSymlinks(dir); err == nil {
		return to
	}
	return dir
}

// writesOf reads how often a device was written or discarded, and how many sectors: fields 5, 7, 12 and 14 of its stat
// (Documentation/block/stat.rst). Both are 0 if it does not count.
func writesOf(dir string) (requests, sectors uint64) {
	text, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, 0
	}
	for i, word := range strings.Fields(string(text)) {
		var n uint64
		_, _ = fmt.Sscan(word, &n) // the kernel writes numbers
		switch i {
		case 4, 11:
			requests += n
		case 6, 13:
			sectors += n
		}
	}
	return requests, sectors
}

// changed returns an error if somebody has written the source since it was opened.
func (s *source) changed() error {
	now, err := s.look()
	switch {
	case err != nil:
		return fmt.Errorf("look whether %s has changed: %w", s.path, err)
	case now != s.state:
		return fmt.Errorf("%s: %w: the copy would be of neither (send it again when nobody writes it)", s.path, protocol.Changed)
	}
	return nil
}

// identity is equal as long as the source is the same and nobody writes it. It tells others nothing.
func (s *source) identity() (id [32]byte) {
	machine, _ := os.ReadFile("/etc/machine-id") // without it, sources of two machines with equal times can be taken for one
	var boot []byte
	if s.device { // its counts begin again with the machine
		boot, _ = os.ReadFile("/proc/sys/kernel/random/boot_id")
	}
	return sha256.Sum256(fmt.Appendf(nil, "unifiedd transfer source %s %s %t %+v", bytes.TrimSpace(machine), bytes.TrimSpace(boot), s.device, s.state))
}

// sparse reports whether a file has holes.
func (s *source) sparse() bool {
	var st unix.Stat_t
	if unix.Fstat(int(s.file.Fd()), &st) != nil || uint64(st.Blocks)*512 >= s.size {
		return false
	}
	at, err := unix.Seek(int(s.file.Fd()), 0, unix.SEEK_HOLE)
	return err == nil && uint64(at) < s.size
}

// part is a range of the source: a piece, or a hole.
type part struct {
	at, length uint64
	hole       bool // it has no data
	holes      bool // a piece, of which a part has no data
}

// next returns the part that begins at an offset, which is a multiple of leafSize. A piece has at most that many bytes, and
// does not cross a multiple of them. A hole is as long as it is, in whole leaves or up to the end.
func (s *source) next(at, piece uint64) (p part, err error) {
	end := min(s.size, at-at%piece+piece)
	if !s.holes {
		return part{at: at, length: end - at}, nil
	}
	data, err := s.seek(at, unix.SEEK_DATA)
	if err != nil {
		return p, err
	}
	if begin := data - data%leafSize; data == s.size {
		return part{at: at, length: s.size - at, hole: true}, nil
	} else if begin > at {
		return part{at: at, length: begin - at, hole: true}, nil
	}
	p = part{at: at, length: end - at, holes: data > at}
	for {
		hole, err := s.seek(data, unix.SEEK_HOLE)
		if err != nil || hole >= end {
			return p, err
		}
		if data, err = s.seek(hole, unix.SEEK_DATA); err != nil {
			return p, err
		}
		p.holes = true
		cut := (hole + leafSize - 1) / leafSize * leafSize
		if cut < end && (data-data%leafSize > cut || data == s.size) {
			p.length = cut - at
			return p, nil
		}
		if data >= end {
			return p, nil
		}
	}
}

// seek finds the next data or hole. After the last data it is the end.
func (s *source) seek(from uint64, what int) (uint64, error) {
	if from >= s.size {
		return s.size, nil
	}
	at, err := unix.Seek(int(s.file.Fd()), int64(from), what)
	switch {
	case errors.Is(err, unix.ENXIO):
		return s.size, nil
	case err != nil:
		return 0, fmt.Errorf("look for holes of %s: %w", s.path, err)
	}
	return min(uint64(at), s.size), nil
}
