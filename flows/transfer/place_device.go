package transfer

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/nvme"
)

// deviceWait is how long a receiver waits for a device that a killed process had open.
const deviceWait = 2 * time.Second

// openDevice opens the device and its record, and finds where to begin.
func (d *destination) openDevice(owner uint64) (err error) {
	p := d.place
	var st unix.Stat_t
	if err := unix.Stat(p.path, &st); err != nil {
		return err
	}
	if d.record, err = lockRecord(p.states, recordOf(st.Rdev)); err != nil {
		return err
	}
	device := deviceIdentity(st.Rdev)
	mine := d.has(device)
	if mine {
		if err := d.checkOwner(owner); err != nil {
			return err
		}
	}
	d.target, err = nvme.OpenTarget(nvme.TargetConfig{Path: p.path, Force: p.force, Filled: mine, Wait: deviceWait})
	if err != nil {
		if d.again != "" {
			err = fmt.Errorf("%s: %w", d.again, err)
		}
		return err
	}
	if size := d.target.Size(); d.request.size > size {
		return fmt.Errorf("%w: it has %d bytes, and the source %d", protocol.NoSpace, size, d.request.size)
	}
	if last := &d.record.last; mine && d.same() && last.sampled == last.durable {
		d.begin, d.hashed = last.durable, last.hashed
		return nil
	}
	one := record{size: d.request.size, owner: owner, source: d.request.identity, device: device, name: p.path}
	if d.samples != nil { // they are there until the first write
		one.sampled, one.samples = d.samples.at, d.samples.sum()
	}
	d.samples = newSamples()
	return d.record.write(one)
}

// has reports whether the device has what the record of an unfinished copy says. Nothing is known of a copy of which
// nothing has become durable: it may have been overwritten, and it is in the way as any other contents are.
func (d *destination) has(device [32]byte) bool {
	last := &d.record.last
	if last.number == 0 || last.complete || last.device != device {
		return false
	}
	if last.sampled == 0 {
		if last.durable > 0 {
			d.again = fmt.Sprintf("%d bytes are durable of an older release, which did not record what to compare them with", last.durable)
		}
		return false
	}
	found, err := readSamples(d.place.path, last.sampled)
	if err == nil && found.sum() != last.samples {
		err = errors.New("the device was written since")
	}
	if err != nil {
		d.again = fmt.Sprintf("an earlier copy of %d bytes is not on it any more: %v", last.sampled, err)
		return false
	}
	d.samples = found
	return true
}

// recordOf returns the name of the record of a device.
func recordOf(number uint64) string {
	dir := resolved(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(number), unix.Minor(number)))
	return filepath.Base(dir) + recordSuffix
}

// deviceIdentity is equal as long as a number is that of the same disk: by its world wide name, or else since the machine
// was started.
func deviceIdentity(number uint64) [32]byte {
	dir := resolved(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(number), unix.Minor(number)))
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	size, _ := os.ReadFile(filepath.Join(dir, "size"))
	part, _ := os.ReadFile(filepath.Join(dir, "partition"))
	unique := fmt.Sprintf("%s %d", strings.TrimSpace(string(boot)), sequenceOf(dir))
	for _, path := range []string{"wwid", "device/wwid", "../wwid", "../device/wwid"} {
		if text, err := os.ReadFile(filepath.Join(dir, path)); err == nil {
			unique = string(text)
			break
		}
	}
	return sha256.Sum256(fmt.Appendf(nil, "%s %s %s", strings.TrimSpace(unique), strings.TrimSpace(string(size)), strings.TrimSpace(string(part))))
}
