package transfer

import (
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
	"github.com/unifiedd/unifiedd/internal/newfile"
	"github.com/unifiedd/unifiedd/nvme"
)

// Hidden names of a file that is not complete.
const (
	hidden       = "."
	partSuffix   = ".unifiedd-part"
	recordSuffix = ".unifiedd-copy"
)

// newMode is the permissions that a file can have which replaces none: those of its source without the umask, and no
// execution.
const newMode = 0o666

// place is where a receiver puts what it receives: a directory, or a block device.
type place struct {
	path     string
	dir      *newfile.Dir // of files; nil: it is a device
	states   *newfile.Dir // of the records of devices
	force    bool
	keepFree uint64
	umask    uint32
}

// openPlace opens a directory, or checks a device. state is the directory for the records of devices.
func openPlace(path, state string, force bool, keepFree uint64) (*place, error) {
	p := &place{path: path, force: force, keepFree: keepFree, umask: umask()}
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case info.IsDir():
		p.dir, err = newfile.OpenDir(path)
	case info.Mode()&(fs.ModeDevice|fs.ModeCharDevice) == fs.ModeDevice:
		if p.states, err = newfile.OpenDir(state); err != nil {
			err = fmt.Errorf("the directory for records of devices: %w (make it, or name another one)", err)
		}
	default:
		err = errors.New("it is neither a directory nor a block device")
	}
	if err != nil {
		return nil, fmt.Errorf("receive into %s: %w", path, err)
	}
	return p, nil
}

// umask is the mask of this process. umask(2) can read it only by changing it, which other threads would notice.
func umask() (mask uint32) {
	mask = 0o077 // if the kernel does not say
	status, _ := os.ReadFile("/proc/self/status")
	if _, text, found := strings.Cut(string(status), "\nUmask:"); found {
		_, _ = fmt.Sscanf(text, "%o", &mask)
	}
	return mask
}

func (p *place) close() (err error) {
	for _, d := range []*newfile.Dir{p.dir, p.states} {
		if d != nil {
			err = errors.Join(err, d.Close())
		}
	}
	p.dir, p.states = nil, nil
	return err
}

// destination is a file or device that is being written. Methods block; one goroutine at a time calls them.
type destination struct {
	place    *place
	request  request
	name     string // for people
	target   *nvme.Target
	record   *recordFile
	dir      *newfile.Dir // of the file
	base     string       // the file's name in it
	stem     string       // of hidden names
	file     *os.File
	begin    uint64   // the first byte that is missing
	hashed   []byte   // state of the hash there
	named    bool     // the file has its name
	reserved bool     // its blocks are reserved
	again    string   // why an earlier copy is not continued; empty: there is none, or it is
	samples  *samples // of a device: of what this copy has put there
}

// open opens the destination of a request. The error has the reason to refuse it.
func (p *place) open(r request, owner uint64) (*destination, error) {
	d := &destination{place: p, request: r, name: r.name}
	open := d.openFile
	if p.dir == nil {
		d.name, open = p.path, d.openDevice
	}
	if err := open(owner); err != nil {
		if _, has := reasonIn(err); !has && (errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS)) {
			err = fmt.Errorf("%w: %w", protocol.NotPermitted, err)
		}
		return nil, errors.Join(fmt.Errorf("%q: %w", d.name, err), d.close())
	}
	return d, nil
}

// checkName returns why a name cannot be one of a file in the receiving directory.
func checkName(name string) error {
	if name == "" || len(name) > maxName || strings.ContainsRune(name, 0) {
		return fmt.Errorf("%w: a name has 1 to %d bytes", protocol.BadName, maxName)
	}
	if strings.HasPrefix(name, "/") {
		return fmt.Errorf("%w: it is an absolute path (name it without the directory: --as)", protocol.BadName)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." || len(part) > unix.NAME_MAX {
			return fmt.Errorf("%w: %q is no part of a path below it", protocol.BadName, part)
		}
	}
	base := filepath.Base(name)
	if strings.HasSuffix(base, partSuffix) || strings.HasSuffix(base, recordSuffix) {
		return fmt.Errorf("%w: it ends as names of copies that are not complete", protocol.BadName)
	}
	return nil
}

func (d *destination) partName() string   { return hidden + d.stem + partSuffix }
func (d *destination) recordName() string { return hidden + d.stem + recordSuffix }

// stemOf returns what hidden names have of a file's name: all of it, or if they were too long then for a file system,
// its beginning and a hash.
func stemOf(base string, most int) string {
	if most -= len(hidden) + max(len(partSuffix), len(recordSuffix)); len(base) <= most {
		return base
	}
	sum := sha256.Sum256([]byte(base))
	end := fmt.Sprintf("-%x", sum[:8])
	return strings.ToValidUTF8(base[:max(0, most-len(end))], "") + end
}

// longestName is how many bytes a name in a directory can have.
func longestName(dir *newfile.Dir) (int, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir.Path("."), &st); err != nil {
		return 0, err
	}
	return min(int(st.Namelen), unix.NAME_MAX), nil
}

// openFile opens the hidden file and its record, and finds where to begin.
func (d *destination) openFile(owner uint64) (err error) {
	if err := checkName(d.request.name); err != nil {
		return err
	}
	d.base = filepath.Base(d.request.name)
	if d.dir, err = d.place.dir.Below(filepath.Dir(d.request.name)); err != nil {
		if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			err = fmt.Errorf("%w: %w", protocol.BadName, err)
		}
		return err
	}
	if err := d.dir.Regular(d.base); err != nil {
		return fmt.Errorf("%w: %w", protocol.BadName, err)
	}
	most, err := longestName(d.dir)
	if err != nil {
		return err
	}
	d.stem = stemOf(d.base, most)
	if d.record, err = lockRecord(d.dir, d.recordName()); err != nil {
		return err
	}
	if err := d.checkOwner(owner); err != nil {
		return err
	}
	if err := d.resumeFile(); err != nil || d.target != nil {
		return err
	}
	if err := d.newFile(owner); err != nil {
		return errors.Join(err, d.discard())
	}
	return nil
}

// lockRecord opens a record for this process alone.
func lockRecord(dir *newfile.Dir, name string) (*recordFile, error) {
	for {
		f, err := dir.OpenFile(name, unix.O_RDWR)
		if errors.Is(err, fs.ErrNotExist) {
			if f, err = makeRecord(dir, name); errors.Is(err, fs.ErrExist) {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return nil, errors.Join(fmt.Errorf("%w: another copy to it is in progress", protocol.Busy), f.Close())
		}
		var mine unix.Stat_t
		now, err := dir.Stat(name)
		if err == nil {
			err = unix.Fstat(int(f.Fd()), &mine)
		}
		if err != nil || now.Ino != mine.Ino { // a copy was completed between open and lock
			if err = errors.Join(ignoreMissing(err), f.Close()); err != nil {
				return nil, err
			}
			continue
		}
		r, err := openRecord(f)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return r, nil
	}
}

// makeRecord makes the file of a record.
func makeRecord(dir *newfile.Dir, name string) (*os.File, error) {
	f, err := dir.Create(name, 0o600)
	if err != nil {
		return nil, err
	}
	if err := reserveRecord(f); err != nil {
		return nil, errors.Join(noSpace(err, "record the copy"), f.Close(), dir.Remove(name))
	}
	if err := dir.Sync(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// checkOwner refuses to continue or replace what another certificate's holder has begun.
func (d *destination) checkOwner(owner uint64) error {
	if last := &d.record.last; last.number > 0 && !last.complete && last.owner != owner && last.durable > 0 {
		return fmt.Errorf("%w: another sender's copy to it is not complete", protocol.NotPermitted)
	}
	return nil
}

// same reports whether the record is of the source that the request describes.
func (d *destination) same() bool {
	last := &d.record.last
	if last.old && last.number > 0 {
		d.again = fmt.Sprintf("%d bytes are durable of an older release, which has another hash", last.durable)
		return false
	}
	if last.number == 0 || last.durable == 0 {
		return last.number > 0 && last.source == d.request.identity && last.size == d.request.size
	}
	if last.source != d.request.identity || last.size != d.request.size {
		d.again = fmt.Sprintf("%d bytes are durable of another source, or the source has changed since", last.durable)
		return false
	}
	return true
}

// resumeFile continues with an earlier copy, if there is one.
func (d *destination) resumeFile() error {
	last := &d.record.last
	if !d.same() || last.name != d.request.name {
		return nil
	}
	name := d.partName()
	if last.whole { // it may have got its name, and nobody was told
		if st, err := d.dir.Stat(d.base); err == nil && st.Ino == last.inode && uint64(st.Size) == last.size {
			name, d.named = d.base, true
		}
	}
	f, err := d.dir.OpenFile(name, unix.O_RDWR)
	if err != nil {
		d.again = "its file cannot be opened: " + err.Error()
		return nil
	}
	d.file = f
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Ino != last.inode {
		d.file, d.named, d.again = nil, false, "its file was replaced"
		return f.Close()
	}
	d.begin, d.hashed = last.durable, last.hashed
	return d.prepareFile()
}

// newFile begins with an empty file.
func (d *destination) newFile(owner uint64) (err error) {
	if err := ignoreMissing(d.dir.Remove(d.partName())); err != nil {
		return err
	}
	if d.file, err = d.dir.Create(d.partName(), 0o600); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(d.file.Fd()), &st); err != nil {
		return err
	}
	d.begin, d.hashed, d.named = 0, nil, false
	err = d.record.write(record{size: d.request.size, owner: owner, inode: st.Ino, source: d.request.identity, name: d.request.name})
	if err == nil {
		err = d.dir.Sync()
	}
	if err == nil {
		err = d.prepareFile()
	}
	return err
}

// prepareFile gives the file its size and blocks, without what lies beyond the place to begin, and opens it for the disk
// queue.
func (d *destination) prepareFile() (err error) {
	if d.named {
		d.begin = d.request.size
	} else {
		if err := d.setTime(); err != nil {
			return err
		}
		if err := d.allocate(); err != nil {
			return err
		}
	}
	d.target, err = nvme.OpenTarget(nvme.TargetConfig{Path: fmt.Sprintf("/proc/self/fd/%d", d.file.Fd()), Buffered: true})
	return err
}

// blockSize is a multiple of what direct I/O requires of offsets and lengths.
const blockSize = 4096

func roundUp(n uint64) uint64 { return (n + blockSize - 1) / blockSize * blockSize }

// allocate sets the size of the file, and reserves its blocks unless the source has holes.
func (d *destination) allocate() error {
	fd, size := int(d.file.Fd()), int64(roundUp(d.request.size))
	if err := unix.Ftruncate(fd, int64(d.begin)); err != nil {
		return err
	}
	if err := d.checkFree(); err != nil {
		return err
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		return noSpace(err, "a file of %d bytes", size)
	}
	if d.request.flags&hasHoles != 0 || size == 0 {
		return nil
	}
	err := unix.Fallocate(fd, 0, 0, size)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return noSpace(err, "reserve %d bytes", size)
	}
	d.reserved = err == nil
	return nil
}

// noSpace adds the reason to an error that says that a disk is full.
func noSpace(err error, format string, args ...any) error {
	for _, full := range []error{unix.ENOSPC, unix.EDQUOT, unix.EFBIG} {
		if errors.Is(err, full) {
			return fmt.Errorf("%w: %s: %w", protocol.NoSpace, fmt.Sprintf(format, args...), err)
		}
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}

// checkFree refuses a file that would take space that must stay free.
func (d *destination) checkFree() error {
	if d.request.flags&hasHoles != 0 { // the sender does not say how many: each piece is looked at when it is written
		return d.checkRoom(0)
	}
	return d.checkRoom(d.request.size - d.begin)
}

// checkRoom refuses to write so many bytes if they would take space that must stay free.
func (d *destination) checkRoom(need uint64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.file.Fd()), &st); err != nil {
		return err
	}
	if free := st.Bavail * uint64(st.Bsize); free < d.place.keepFree || free-d.place.keepFree < need {
		return fmt.Errorf("%w: it takes %d bytes, and %d are free, of which %d stay free", protocol.NoSpace, need, free, d.place.keepFree)
	}
	return nil
}

// note makes durable that the copy is durable up to a byte. hashed is the state of the hash there, and samples the hash of
// samples of a device.
func (d *destination) note(durable uint64, hashed []byte, samples [32]byte) error {
	one := d.record.last
	one.durable, one.hashed = durable, hashed
	if d.samples != nil {
		one.sampled, one.samples = durable, samples
	}
	return d.record.write(one)
}

// sampled returns the hash of the samples of a device.
func (d *destination) sampled() (sum [32]byte) {
	if d.samples != nil {
		sum = d.samples.sum()
	}
	return sum
}

// commit makes the copy complete. What was written is durable, and has been compared with the hash of the sender. hashed
// is the state of the hash at the end.
func (d *destination) commit(digest [32]byte, hashed []byte) error {
	one := d.record.last
	one.durable, one.digest, one.whole, one.hashed = one.size, digest, true, hashed
	if d.dir == nil {
		one.complete = true
		return d.record.write(one)
	}
	if d.named {
		return nil
	}
	if err := d.finish(); err != nil {
		return fmt.Errorf("complete %q: %w", d.name, err)
	}
	if err := d.record.write(one); err != nil {
		return err
	}
	if err := d.dir.Regular(d.base); err != nil {
		return fmt.Errorf("%w: %w", protocol.BadName, err)
	}
	if err := d.dir.Rename(d.partName(), d.base); err != nil {
		return err
	}
	d.named = true
	return d.dir.Sync()
}

// finish gives the file its exact size, its permissions and times, and makes it durable.
func (d *destination) finish() error {
	fd, r := int(d.file.Fd()), &d.request
	if err := unix.Ftruncate(fd, int64(r.size)); err != nil {
		return err
	}
	mode := r.mode & newMode &^ d.place.umask
	if old, err := d.dir.Stat(d.base); err == nil {
		mode = old.Mode & 0o777
	}
	if r.flags&wantPerms != 0 {
		mode = r.mode & 0o777 // the peer makes no file that runs with the rights of its owner
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return err
	}
	if err := d.setTime(); err != nil {
		return err
	}
	return unix.Fsync(fd)
}

// setTime gives the file the time of modification of the source, if that is wanted. A file system stores the nearest time
// that it can have instead of one that it cannot have, and does not say so.
func (d *destination) setTime() error {
	if d.request.flags&wantTimes == 0 {
		return nil
	}
	fd, want := int(d.file.Fd()), d.request.modified
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, want}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), times, 0); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if off := st.Mtim.Sec - want.Sec; off < -2 || off > 2 { // coarse times are those of the file system
		return fmt.Errorf("%w: the file system of the receiver cannot store %v, the time of modification (send it without --times)", protocol.OutOfRange,
			time.Unix(want.Sec, want.Nsec).UTC().Format(time.RFC3339))
	}
	return nil
}

// forget removes the record of a file that is complete.
func (d *destination) forget() error {
	if d.dir == nil {
		return nil
	}
	return ignoreMissing(d.dir.Remove(d.recordName()))
}

// discard removes what was written. A device has it still, and its record says that nothing of it is durable, and what
// is there.
func (d *destination) discard() error {
	if d.dir == nil {
		one := d.record.last
		one.durable, one.hashed, one.source, one.complete, one.whole = 0, nil, [32]byte{}, false, false
		one.sampled, one.samples = d.samples.at, d.samples.sum()
		return d.record.write(one)
	}
	if d.named {
		return nil
	}
	return errors.Join(ignoreMissing(d.dir.Remove(d.partName())), ignoreMissing(d.dir.Remove(d.recordName())))
}

func (d *destination) close() (err error) {
	if d.target != nil {
		err = d.target.Close()
	}
	if d.file != nil {
		err = errors.Join(err, d.file.Close())
	}
	if d.record != nil {
		err = errors.Join(err, d.record.close())
	}
	if d.dir != nil {
		err = errors.Join(err, d.dir.Close())
	}
	d.target, d.file, d.record, d.dir = nil, nil, nil, nil
	return err
}
