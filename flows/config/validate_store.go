package config

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// store checks the sink of a flow that records.
func (v *validator) store(path string, t *To, kind Kind) {
	v.target(path, t)
	v.comment(join(path, "comment"), t.Comment)
	v.checkErr(join(path, "layout"), member(t.Layout, allLayouts))
	v.slot(join(path, "layout"), t.Layout)
	v.checkErr(join(path, "prepare"), member(t.Prepare, allPrepares))
	v.segment(join(path, "segment"), &t.Segment)
	v.files(path, t)
	if kind.Log() {
		if kind == KindAttachStorage && t.Layout == LayoutSlot {
			v.refuse(join(path, "layout"), wrong("say layout: packed", "an attached program could change a message after its checksum, so the log copies it"))
		}
		v.log(path, t)
		return
	}
	v.check(within(t.Flush, minFlush, maxFlush), join(path, "flush"),
		"%s is not from %s to %s", t.Flush, minFlush, maxFlush)
	v.durable(join(path, "durable"), t.Durable)
	v.check(t.Snaplen <= maxSnaplen, join(path, "snaplen"), "%s is more than the longest packet, %s; 0 means whole packets", t.Snaplen, maxSnaplen)
}

// maxSnaplen is the longest packet in a capture file: libpcap's limit.
const maxSnaplen = 256 * KiB

// durable checks the flush interval of a flow that records packets.
func (v *validator) durable(path string, d time.Duration) {
	if d == GroupCommit {
		v.refuse(path, wrong(didYouMean("written"), "an interval of 0 is not possible"))
		return
	}
	v.check(d == Written || d >= minDurable, path, "%s is less than %s", d, minDurable)
}

// log checks acknowledge against durable: a log that acknowledges durable messages must flush.
func (v *validator) log(path string, t *To) {
	acknowledge, durable := join(path, "acknowledge"), join(path, "durable")
	v.check(within(t.Flush, 0, maxFlush), join(path, "flush"), "%s is not from 0s to %s", t.Flush, maxFlush)
	v.check(t.Durable == Written || t.Durable == GroupCommit || t.Durable >= minDurable, durable,
		"%s is less than %s", t.Durable, minDurable)
	if keep := join(path, "segment.keep"); t.Segment.Keep.Count == 1 {
		v.refuse(keep, wrong("keep 2 or more", "1 is too few for a log: a segment which has just begun may hold no record yet"))
	}
	v.checkErr(acknowledge, member(t.Acknowledge, logAcknowledges))
	if t.Acknowledge == AcknowledgeDurable && t.Durable == Written {
		v.refuse(durable, wrong("remove it, or say acknowledge: written",
			"nothing would be flushed to stable storage, and acknowledge is durable"))
	}
}

// slot checks that a packet and its record fit a frame.
func (v *validator) slot(path string, l Layout) {
	if l == LayoutSlot && v.Region.Frame == 2048 {
		v.refuse(path, wrong("raise region.frame to 4096, or use layout packed", "slot does not fit frames of 2048 bytes"))
	}
}

// target checks the path of a file or device.
func (v *validator) target(path string, t *To) {
	file, device := join(path, "file"), join(path, "device")
	switch {
	case v.settled[file] || v.settled[device]:
	case v.given(file, t.File):
		v.checkErr(file, checkPrefix(t.File, t.Exact && t.Rotate == (Rotate{})))
		v.noDevice(file, t)
		v.check(!t.Force, join(path, "force"), "has a meaning only for a device")
	default:
		v.checkErr(device, checkPath(t.Device, maxPath))
		v.onDevice(path, t)
	}
}

// noDevice refuses the paths of devices and of kernel files: segments next to them would not be
// files on a disk. Commands that write one file or no file may name them.
func (v *validator) noDevice(path string, t *To) {
	for _, dir := range []string{"/dev/", "/proc/", "/sys/"} {
		if !t.Exact && strings.HasPrefix(t.File, dir) && !strings.HasPrefix(t.File, "/dev/shm/") {
			v.refuse(path, wrong("say to: {discard: true} to keep nothing, to: {device: …} for a disk, or name a place on a disk's file system",
				"segments cannot be files in %s", dir))
		}
	}
}

// files checks the settings that apply to files and not to devices.
func (v *validator) files(path string, t *To) {
	mode, owner, free := join(path, "mode"), join(path, "owner"), join(path, "keep_free")
	if t.Device != "" {
		const only = "has a meaning only for a file"
		v.check(t.Mode == 0, mode, only)
		v.check(t.Owner == "", owner, only)
		v.check(t.KeepFree == 0, free, only)
		v.check(!t.Create, join(path, "create"), only)
		return
	}
	v.checkErr(mode, checkMode(t.Mode))
	if v.given(owner, t.Owner) {
		v.checkErr(owner, checkOwner(t.Owner))
	}
	v.check(t.KeepFree >= -99 || t.KeepFree == DefaultRoom, free, "%s is not from 0%% to 99%%", t.KeepFree)
	if t.KeepFree != 0 && t.Prepare == PrepareNone && !t.Exact {
		v.refuse(free, wrong("use prepare: allocate or zero", "takes segments whose space is taken before they are used"))
	}
}

// onDevice refuses settings that do not apply to a ring of segments on a device.
func (v *validator) onDevice(path string, t *To) {
	keep, prepare := join(path, "segment.keep"), join(path, "prepare")
	if t.Segment.Keep != (Keep{}) {
		v.refuse(keep, wrong("remove it", "has a meaning only for a file: a device keeps as many segments as fit"))
	}
	v.check(!t.Index, join(path, "index"), "has a meaning only for a file: a device is searched by time without")
	v.check(t.Prepare == PrepareNone || t.Prepare == "", prepare, "has a meaning only for a file: a device is written as it is")
}

func (v *validator) segment(path string, s *Segment) {
	v.checkErr(join(path, "size"), sizeBetween(s.Size, minSegment, maxSegment))
	v.check(s.Every == 0 || s.Every >= time.Second, join(path, "every"),
		"%s is less than 1s; 0s means never", s.Every)
	v.keep(join(path, "keep"), s)
}

// source checks the source of a flow that serves blocks.
func (v *validator) source(path string, f *From) {
	for _, n := range []named{{"file", "", f.File}, {"device", "", f.Device}} {
		if at := join(path, n.key); v.given(at, n.text) {
			v.checkErr(at, checkPath(n.text, maxFilePath))
		}
	}
}

// blocks checks the requests that clients may send.
func (v *validator) blocks(path string, t *To) {
	v.clientListener(path, clientListener{t.RDMA, t.Listen, t.Window, t.Clients, t.Allow})
	v.checkErr(join(path, "transfer"), transfer(t.Transfer))
	v.check(t.Cache <= v.Region.Size, join(path, "cache"), "%s are more than the region of %s", t.Cache, v.Region.Size)
	if index := join(path, "cache_index"); t.CacheIndex != "" {
		v.checkErr(index, checkPath(t.CacheIndex, maxFilePath))
		if t.Cache == 0 {
			v.refuse(index, wrong("set to.cache, too", "there is no cache"))
		}
		if v.Region.Device == "" {
			v.refuse(index, wrong("put the region on a device (region.device)", "huge pages lose what they have when the daemon ends"))
		}
	}
}

// transfer checks the length of the longest request.
func transfer(s Size) error {
	if err := sizeBetween(s, minTransfer, maxTransfer); err != nil {
		return err
	}
	if s%minTransfer != 0 {
		return fmt.Errorf("%s is not a multiple of %s", s, minTransfer)
	}
	return nil
}

// Bounds of settings for sending captures.
const (
	maxLoop     = 1_000_000_000
	maxSpin     = time.Millisecond
	maxLate     = time.Minute
	maxCaptures = 1024
)

// parseLoop parses the number of times to send captures.
func parseLoop(s string) (int, error) {
	if s == "endless" {
		return Endless, nil
	}
	return parseInt(s)
}

// captures checks the captures to send.
func (v *validator) captures(path string, f *From) {
	at := join(path, "files")
	_, listed := v.places[at]
	if listed = listed || f.Files != nil; listed && !v.explained(at) {
		v.check(len(f.Files) > 0 && len(f.Files) <= maxCaptures, at, "%d captures are listed; 1 to %d are possible", len(f.Files), maxCaptures)
		v.check(f.File == "", at, "a file is given in addition to the list: put it in the list")
	}
	for i, name := range f.Files {
		v.checkErr(index(at, i), checkPath(name, maxFilePath))
	}
	if f.Device != "" {
		v.refuse(join(path, "device"), wrong("make a file of it (unifiedd export), and send that", "a ring on a device cannot be sent"))
	}
	loop := join(path, "loop")
	v.check(f.Loop == Endless || within(f.Loop, 1, maxLoop), loop, "%d is not from 1 to %d, or the word endless", f.Loop, maxLoop)
	if f.Object != (Object{}) || f.Rules != nil {
		v.refuse(join(path, "filter"), wrong("say one expression", "rules and programs decide on packets that arrive, not on those of captures"))
		return
	}
	v.filter(join(path, "filter"), f.Filter)
}

// sending checks the settings for sending packets of captures.
func (v *validator) sending(path string, t *To) {
	v.need(join(path, "interface"), t.Interface, "the name of a network interface")
	v.checkErr(join(path, "interface"), checkInterface(t.Interface))
	v.checkErr(join(path, "zero_copy"), member(t.ZeroCopy, allZeroCopies))
	v.check(within(t.Ring, MinRing, MaxRing) && powerOfTwo(uint64(t.Ring)), join(path, "ring"),
		"%d is not a power of two from %d to %d", t.Ring, MinRing, MaxRing)
	v.checkErr(join(path, "pace"), checkPace(t.Pace))
	v.checkErr(join(path, "spin"), upTo(t.Spin, maxSpin))
	v.checkErr(join(path, "late"), upTo(t.Late, maxLate))
	if t.MaxGap < 0 {
		v.refuse(join(path, "max_gap"), errors.New("is negative"))
	}
}

func upTo(d, most time.Duration) error {
	if within(d, 0, most) {
		return nil
	}
	return fmt.Errorf("%s is not up to %s", d, most)
}

// paces replaces each key below to.pace by to.pace.
func paces(keys []string) []string {
	for i, key := range keys {
		if strings.HasPrefix(key, "to.pace.") {
			keys[i] = "to.pace"
		}
	}
	return keys
}
