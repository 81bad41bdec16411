package nvmet

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// keeper keeps the reservations of a server in a file that several servers may share, also those of
// other processes of the machine. A change is made under the file's lock and is durable before any
// server uses it. It is complete when each server has acknowledged it: no command that the change
// forbids is then still in progress at any of them. A server that has ended has lost its lock, so
// nobody waits for it. One that is stopped is waited for, and so is one that was killed while its disks have
// requests: the disks' queue holds the file of the lock open until they are done.
//
// The first page is mapped by all servers: a number that each change increments, and a word for each
// server with the number that it has acknowledged. The goroutine of the keeper does everything that
// blocks. The other methods belong to the server's thread.
type keeper struct {
	file   *os.File // opened once for the lock of changes, which ends with the process
	held   *os.File // and once for that of the server
	page   []byte
	member int

	requests chan *change
	wake     chan struct{} // the number is not that of the snapshot
	snapshot atomic.Pointer[record]
	failed   atomic.Pointer[error]
	stop     chan struct{}
	ended    chan struct{} // closed when the goroutine has ended
	released bool
}

// change is a command for the keeper's goroutine, and its result.
type change struct {
	place   place
	host    fabrics.HostIdentity
	command fabrics.ReservationCommand
	status  fabrics.Status
	state   *fabrics.Reservations // for a report
	done    atomic.Bool
}

// Offsets in the file, and of words in the first page. The locks are of bytes that the file does not
// have.
const (
	keeperPage  = 4096
	wordNumber  = 64
	wordMembers = 128
	members     = 32
	lockChange  = 1 << 40
	lockMember  = lockChange + 1
	keeperPoll  = 500 * time.Microsecond
)

// Errors of the file.
var (
	errFull  = fmt.Errorf("%d servers use it already", members)
	errOther = errors.New("it is no file of reservations of this version: name another one, or remove it")
)

// ShareNumber returns the nvme.TargetConfig.Share of a namespace's disk. Servers of this machine that would not
// obey the same reservations get different ones. It makes the file of reservations if there is none.
func ShareNumber(reservations, nqn string, namespace uint32) (uint64, error) {
	const unreserved = 1
	if reservations == "" {
		return unreserved, nil
	}
	f, err := os.OpenFile(reservations, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %d %s", st.Dev, st.Ino, namespace, nqn))
	return max(binary.LittleEndian.Uint64(sum[:]), unreserved+1), nil
}

// openKeeper opens the file, makes it if there is none, and becomes one of its servers.
func openKeeper(path string) (k *keeper, err error) {
	k = &keeper{requests: make(chan *change, 1), wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	if k.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	k.held, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", k.file.Fd()), os.O_RDWR, 0)
	if err == nil {
		err = k.join()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reservations in %s: %w", path, err), k.release())
	}
	go k.run()
	return k, nil
}

// join reads the file and takes a place among its servers.
func (k *keeper) join() error {
	if err := localFile(k.file); err != nil {
		return err
	}
	if err := k.lock(); err != nil {
		return err
	}
	defer k.unlock()
	if err := k.prepare(); err != nil {
		return err
	}
	r, err := readRecord(k.file)
	if err != nil {
		return err
	}
	if r.Number == 0 || k.newMachine(r) { // nobody else has the file open then
		if r, err = k.begin(r); err != nil {
			return err
		}
	}
	for k.member = range members {
		if ok, err := lockRange(k.held, lockMember+int64(k.member), unix.F_WRLCK); err != nil {
			return err
		} else if ok {
			k.number().Store(r.Number)
			k.word(wordMembers + 8*k.member).Store(r.Number)
			k.snapshot.Store(r)
			return nil
		}
	}
	return errFull
}

// prepare maps the first page. A new file gets its size first.
func (k *keeper) prepare() error {
	st, err := k.file.Stat()
	if err != nil {
		return err
	}
	switch {
	case st.Size() > fileLen:
		return errOther
	case st.Size() < fileLen: // written as a whole, since a full disk would end a process that writes to the mapped page
		b := make([]byte, fileLen)
		if n, err := k.file.ReadAt(b, 0); bytes.Count(b[:n], []byte{0}) != n {
			return errors.Join(errOther, err)
		}
		if _, err := k.file.WriteAt(make([]byte, fileLen), 0); err != nil {
			return fmt.Errorf("write to it: %w", err)
		}
	}
	k.page, err = unix.Mmap(int(k.file.Fd()), 0, keeperPage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return err
}

// newMachine reports whether the machine has started since the last change.
func (k *keeper) newMachine(r *record) bool { return r.Boot != bootID() }

// begin writes the first record, or one without what does not persist through a loss of power.
func (k *keeper) begin(r *record) (*record, error) {
	next := r.clone()
	next.Boot = bootID()
	for at, one := range next.Places {
		if !one.Persist {
			delete(next.Places, at)
		}
	}
	next.Number++
	return next, writeRecord(k.file, next)
}

// number is the word with the number of the last change.
func (k *keeper) number() *atomic.Uint64 { return k.word(wordNumber) }

// pending reports whether there is a change that the server has not got. If so, the goroutine reads it.
func (k *keeper) pending(have uint64) bool {
	if k.number().Load() == have {
		return false
	}
	if k.snapshot.Load().Number == have {
		select {
		case k.wake <- struct{}{}:
		default:
		}
		return false
	}
	return true
}

// acknowledge says that the server obeys a record, and that nothing is left of what it forbids.
func (k *keeper) acknowledge(number uint64) { k.word(wordMembers + 8*k.member).Store(number) }

// run executes changes and reads those of other servers.
func (k *keeper) run() {
	defer close(k.ended)
	for {
		select {
		case <-k.stop:
			return
		case <-k.wake:
			if err := k.refresh(); err != nil {
				k.fail(err)
			}
		case c := <-k.requests:
			if err := k.execute(c); err != nil {
				k.fail(err)
				c.status = fabrics.InternalError
			}
			c.done.Store(true)
		}
	}
}

// refresh reads what another server has written. Under the lock, because two changes during a read
// would overwrite both records.
func (k *keeper) refresh() error {
	if err := k.lock(); err != nil {
		return err
	}
	defer k.unlock()
	r, err := readRecord(k.file)
	if err == nil {
		k.snapshot.Store(r)
	}
	return err
}

// fail records an error of the file. The server ends.
func (k *keeper) fail(err error) {
	err = fmt.Errorf("reservations in %s: %w", k.file.Name(), err)
	k.failed.CompareAndSwap(nil, &err)
}

// err returns the error of the file.
func (k *keeper) err() error {
	if err := k.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// execute makes a change, and waits until all servers have acknowledged it.
func (k *keeper) execute(c *change) error {
	r, err := k.settle()
	if err != nil {
		return err
	}
	next, err := k.make(r, c)
	k.unlock()
	if err != nil || next == nil {
		return err
	}
	return k.await(next.Number)
}

// settle waits until all servers have acknowledged the last change, and returns the record. The caller has the
// lock then. A host whose path has failed repeats a command that is not complete yet, or asks for a report: if it
// were answered at once, it would believe that the others are shut out. And a server must not pass over a change,
// whose commands it would not look for.
func (k *keeper) settle() (*record, error) {
	for {
		number := k.number().Load()
		if err := k.await(number); err != nil {
			return nil, err
		}
		if err := k.lock(); err != nil {
			return nil, err
		}
		r, err := readRecord(k.file)
		if err == nil && r.Number == number {
			return r, nil
		}
		if err == nil {
			k.number().Store(r.Number) // whoever has written it may have been killed before it said so
		}
		k.unlock()
		if err != nil {
			return nil, err
		}
	}
}

// await waits until all servers have acknowledged a record.
func (k *keeper) await(number uint64) error {
	for i := range members {
		for k.word(wordMembers+8*i).Load() < number {
			alive, err := k.alive(i)
			if err != nil {
				return err
			}
			if !alive {
				break
			}
			if !k.pause() {
				return os.ErrClosed
			}
		}
	}
	return nil
}

// make changes the file. next is nil if nothing has changed.
func (k *keeper) make(r *record, c *change) (next *record, err error) {
	if c.command.Opcode == fabrics.OpReservationReport {
		c.state = r.of(c.place)
		return nil, nil
	}
	next = r.clone()
	at := next.Places[c.place]
	if at == nil {
		at = new(fabrics.Reservations)
	}
	notices, changed, status := at.Apply(c.host, c.command)
	if c.status = status; !changed {
		return nil, nil
	}
	next.Number++
	next.Places[c.place] = at
	next.tell(c.place, notices)
	if err := next.fits(); err != nil {
		c.status = fabrics.InternalError | fabrics.DoNotRetry
		return nil, nil
	}
	if err := writeRecord(k.file, next); err != nil {
		return nil, err
	}
	k.snapshot.Store(next)
	k.number().Store(next.Number)
	return next, nil
}

// alive reports whether a server still has its place.
func (k *keeper) alive(i int) (bool, error) {
	if i == k.member {
		return true, nil
	}
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: lockMember + int64(i), Len: 1}
	err := unix.FcntlFlock(k.file.Fd(), unix.F_OFD_GETLK, &l)
	return l.Type != unix.F_UNLCK, err
}

// lock takes the lock of changes. It fails when the keeper is closed.
func (k *keeper) lock() error {
	for {
		ok, err := lockRange(k.file, lockChange, unix.F_WRLCK)
		if ok || err != nil {
			return err
		}
		if !k.pause() {
			return os.ErrClosed
		}
	}
}

func (k *keeper) unlock() { _, _ = lockRange(k.file, lockChange, unix.F_UNLCK) }

// pause waits for a moment. It reports false when the keeper is closed.
func (k *keeper) pause() bool {
	select {
	case <-k.stop:
		return false
	case <-time.After(keeperPoll):
		return true
	}
}

// lockRange takes or gives back the lock of a byte. ok is false if another server has it.
func lockRange(f *os.File, at int64, kind int16) (ok bool, err error) {
	l := unix.Flock_t{Type: kind, Start: at, Len: 1}
	switch err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l); {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("lock it: %w", err)
	}
	return true, nil
}

// Close ends the goroutine and gives up the server's place. The disks' queue must be closed. A change that waits
// for other servers is not answered, and stays.
func (k *keeper) Close() error { return k.closeWithin(closeLimit) }

// closeWithin is Close that waits at most limit for the file, which may be on a disk that hangs. It is called again
// while the error is an nvme.StuckError.
func (k *keeper) closeWithin(limit time.Duration) error {
	if k.released {
		return nil
	}
	select {
	case <-k.stop:
	default:
		close(k.stop)
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-k.ended:
	case <-late.C:
		return &nvme.StuckError{Operations: 1, Cause: fmt.Errorf("the disk of %s, the file of reservations, does not answer", k.file.Name())}
	}
	return k.release()
}

// closeLimit is how long Close waits for the file.
const closeLimit = 5 * time.Second

func (k *keeper) release() (err error) {
	k.released = true
	if k.page != nil {
		err = unix.Munmap(k.page)
		k.page = nil
	}
	if k.held != nil {
		_, unlocked := lockRange(k.held, lockMember+int64(k.member), unix.F_UNLCK) // the kernel may still be about to close what the disks' queue held
		err = errors.Join(err, unlocked, k.held.Close())
	}
	return errors.Join(err, k.file.Close())
}
