package config

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Bounds of a flow's settings. A device name has 15 bytes (IFNAMSIZ, linux/if.h)
// and 4096 queues at most (rtnl_create_link, net/core/rtnetlink.c). A segment's
// name adds 41 bytes to its prefix, of the 255 a file name may have; paths have
// 4095 (PATH_MAX).
const (
	maxInterface = 15
	maxQueue     = 4095
	minRing      = 64
	maxRing      = 32768
	minSegment   = MiB
	maxSegment   = 64 * TiB
	maxPath      = 4095 - maxSuffix
	maxBase      = 255 - maxSuffix
	maxSuffix    = 41
)

func (v *validator) flows() {
	v.check(len(v.Flows) > 0, "flows", "at least one is needed")
	names := newTaken[string](v, "flow")
	interfaces := newTaken[string](v, "interface")
	files := newTaken[string](v, "file")
	devices := newTaken[string](v, "device")
	for i := range v.Flows {
		f, path := &v.Flows[i], index("flows", i)
		v.name(join(path, "name"), f.Name)
		names.take(join(path, "name"), f.Name)
		v.worker(join(path, "worker"), f.Worker)
		v.from(join(path, "from"), &f.From)
		interfaces.take(join(path, "from.interface"), f.From.Interface)
		v.to(join(path, "to"), &f.To)
		v.slot(join(path, "to.layout"), f.To.Layout)
		files.take(join(path, "to.file"), clean(f.To.File))
		devices.take(join(path, "to.device"), clean(f.To.Device))
	}
}

// worker checks that the worker of a flow exists.
func (v *validator) worker(path, name string) {
	if !v.need(path, name, "the name of a worker") {
		return
	}
	names := make([]string, len(v.Workers))
	for i, w := range v.Workers {
		names[i] = w.Name
		if name == w.Name || v.explained(index("workers", i)+".name") {
			return
		}
	}
	hint := ""
	if meant, ok := suggest(name, names); ok {
		hint = didYouMean(meant)
	}
	v.refuse(path, wrong(hint, "there is no worker %s", quote(name)))
}

func (v *validator) from(path string, f *From) {
	v.need(join(path, "interface"), f.Interface, "the name of a network interface")
	v.checkErr(join(path, "interface"), checkInterface(f.Interface))
	v.checkErr(join(path, "zero_copy"), member(f.ZeroCopy, allZeroCopies))
	v.checkErr(join(path, "timestamps"), member(f.Timestamps, allTimestamps))
	v.check(within(f.Ring, minRing, maxRing) && powerOfTwo(uint64(f.Ring)), join(path, "ring"),
		"%d is not a power of two from %d to %d", f.Ring, minRing, maxRing)
	v.check(within(f.BusyPoll, 0, maxPoll) && f.BusyPoll%time.Microsecond == 0, join(path, "busy_poll"),
		"%s is not whole microseconds, up to %s", f.BusyPoll, maxPoll)
	v.queues(join(path, "queues"), f.Queues)
	v.filter(join(path, "filter"), f.Filter)
}

func (v *validator) queues(path string, queues []int) {
	v.check(queues == nil || len(queues) > 0, path, "no queue is listed")
	numbers := newTaken[int](v, "queue")
	for i, q := range queues {
		at := index(path, i)
		v.check(within(q, 0, maxQueue), at, "%d is not from 0 to %d", q, maxQueue)
		numbers.take(at, q)
	}
}

// filter asks the hook, and puts the caret where the hook says.
func (v *validator) filter(path, expr string) {
	if !v.given(path, expr) || v.explained(path) {
		return
	}
	if strings.TrimSpace(expr) == "" {
		v.refuse(path, wrong("remove the key to have everything", "is empty"))
		return
	}
	if v.CheckFilter == nil {
		return
	}
	err := v.CheckFilter(expr)
	if err == nil {
		return
	}
	at, err := v.filterPlace(path, expr, err)
	v.add(at, path, err)
}

// filterPlace is where in the file a filter's mistake is. Where that cannot be
// told, the message says where in the filter.
func (v *validator) filterPlace(path, expr string, err error) (Pos, error) {
	at := v.place(path)
	var o interface{ Offset() int }
	if !errors.As(err, &o) {
		return at, err
	}
	if v.src != nil {
		if exact, ok := v.src.offset(at, expr, o.Offset()); ok {
			return exact, err
		}
	}
	return at, fmt.Errorf("%w (at byte %d of the filter)", err, o.Offset())
}

func (v *validator) to(path string, t *To) {
	v.target(path, t)
	v.checkErr(join(path, "layout"), member(t.Layout, allLayouts))
	v.checkErr(join(path, "prepare"), member(t.Prepare, allPrepares))
	v.check(within(t.Flush, minFlush, maxFlush), join(path, "flush"),
		"%s is not from %s to %s", t.Flush, minFlush, maxFlush)
	v.check(t.Durable == Written || t.Durable >= minDurable, join(path, "durable"),
		"%s is less than %s", t.Durable, minDurable)
	v.segment(join(path, "segment"), &t.Segment)
}

// slot checks that a packet and what is written around it fit a frame.
func (v *validator) slot(path string, l Layout) {
	if l == LayoutSlot && v.Region.Frame == 2048 {
		v.refuse(path, wrong("raise region.frame to 4096, or use layout packed", "slot does not fit frames of 2048 bytes"))
	}
}

// target checks that there is one destination, and its form.
func (v *validator) target(path string, t *To) {
	file, device := join(path, "file"), join(path, "device")
	switch isFile, isDevice := v.given(file, t.File), v.given(device, t.Device); {
	case v.settled[file] || v.settled[device]:
	case isFile && isDevice:
		v.refuse(device, errors.New("the flow has a file already: only one of file and device is possible"))
	case isFile:
		v.checkErr(file, checkPrefix(t.File))
		v.check(!t.Force, join(path, "force"), "has a meaning only for a device")
	case isDevice:
		v.checkErr(device, checkPath(t.Device, maxPath))
		v.onDevice(path, t)
	default:
		v.refuse(path, errors.New("a file or a device is needed"))
	}
}

// onDevice refuses what has no meaning on a device, which is a ring of segments.
func (v *validator) onDevice(path string, t *To) {
	keep, prepare := join(path, "segment.keep"), join(path, "prepare")
	if t.Segment.Keep != 0 {
		v.refuse(keep, wrong("remove it", "has a meaning only for a file: a device keeps as many segments as fit"))
	}
	v.check(t.Prepare == PrepareNone || t.Prepare == "", prepare, "has a meaning only for a file: a device is written as it is")
}

func (v *validator) segment(path string, s *Segment) {
	v.checkErr(join(path, "size"), sizeBetween(s.Size, minSegment, maxSegment))
	v.check(s.Every == 0 || s.Every >= time.Second, join(path, "every"),
		"%s is less than 1s; 0s means never", s.Every)
	v.check(s.Keep >= 0, join(path, "keep"), "%d is negative; 0 means all", s.Keep)
}
