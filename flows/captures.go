package flows

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/internal/capfile"
	"github.com/unifiedd/unifiedd/internal/capinput"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/nvme"
)

// capture is a file with packets that are sent.
type capture struct {
	name    string
	target  *nvme.Target
	number  uint32          // in the queue, once it is in one
	size    int64           // bytes of it that are read
	growing bool            // a segment that was not completed: it may end in front of that
	links   []linktype.Type // of its interfaces, as far as they are described in front of the first packet
	extra   uint8           // for capfile.Parser.Extra
	copied  int64           // bytes that were copied into a temporary file, which is read then: it is compressed, or a pipe
	cut     error           // why that ends before the capture does; nil: it does not
	follows bool            // it goes on where the one in front of it ended: the time between them counts
}

// mostCaptures is how many files a flow has open.
const mostCaptures = 1024

// openCaptures opens what is to be sent, in order.
func openCaptures(e *pipeline.Env, names []string) (all []capture, err error) {
	for _, name := range names {
		found, err := findCaptures(name)
		if err != nil {
			return nil, err
		}
		for i, path := range found {
			one, err := openCapture(e, path)
			if err != nil {
				return nil, err
			}
			one.follows = i > 0
			all = append(all, one)
		}
	}
	if len(all) > mostCaptures {
		return nil, fmt.Errorf("%d files are to be sent; %d at most are possible: name fewer of them", len(all), mostCaptures)
	}
	return all, nil
}

// findCaptures is a file itself, or the segments of the flow that has this prefix as its to.file.
func findCaptures(name string) ([]string, error) {
	_, err := os.Stat(name)
	if err == nil {
		return []string{name}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	found, listErr := pcapng.NewNames(name).List()
	if listErr != nil {
		return nil, listErr
	}
	var paths []string
	for _, one := range found {
		if !one.Prepared {
			paths = append(paths, one.Path)
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%w, and no segment begins with it (name a capture file, or what to.file of a recording flow says)", err)
	}
	return paths, nil
}

// openCapture opens a file and finds out how much of it may be read. A copy of a compressed one is read instead.
func openCapture(e *pipeline.Env, path string) (c capture, err error) {
	in, err := capinput.Open(e.Context(), path)
	if err != nil {
		return c, fmt.Errorf("read capture %s: %w", path, err)
	}
	c.name, c.copied, c.cut = path, in.Copied, in.Cut
	if c.copied > 0 {
		e.Undo.Add(in.Close)
		path = fmt.Sprintf("/proc/self/fd/%d", in.Fd())
	} else {
		defer in.Close()
	}
	if c.size, c.growing, err = readable(in.File); err != nil {
		return c, fmt.Errorf("read capture %s: %w", c.name, err)
	}
	if c.size == 0 {
		return c, fmt.Errorf("read capture %s: it is empty", c.name)
	}
	c.extra = capfile.Probe(in, c.size)
	c.links = capfile.Links(in, c.size, c.extra)
	if c.target, err = nvme.OpenTarget(nvme.TargetConfig{Path: path, ReadOnly: true, Buffered: true}); err == nil {
		e.Undo.Add(c.target.Close)
	}
	return c, err
}

// checkLinks refuses captures whose packets do not begin with what those of an interface do. Of an interface that is described behind
// the first packet of a capture the packets are counted, and not sent.
func (r *reel) checkLinks(d netdev.Device) error {
	for i := range r.all {
		c := &r.all[i]
		for _, of := range c.links {
			switch {
			case of.Like() == d.Link:
			case len(c.links) > 1:
				return fmt.Errorf("%w: capture %s has packets of several link types, %v among them, and %s takes %v (make a file of those alone: tshark -r %s -Y 'frame.interface_id == N' -w FILE)",
					netdev.ErrLinkType, c.name, of, d.Describe(), d.Link, c.name)
			default:
				return fmt.Errorf("%w: packets of capture %s are %v, and %s takes %v", netdev.ErrLinkType, c.name, of, d.Describe(), d.Link)
			}
		}
	}
	return nil
}

// readable is how many bytes of a capture may be read, and whether it is a segment of ours that was not completed. What
// others write is read as far as it is now.
func readable(f *os.File) (size int64, growing bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, false, err
	}
	if !info.Mode().IsRegular() {
		return 0, false, errors.New("it is no regular file (of the ring on a device: unifiedd export makes a file)")
	}
	if size, err = f.Seek(0, io.SeekEnd); err != nil {
		return 0, false, err
	}
	end, err := pcapng.Reach(f, size)
	switch {
	case errors.Is(err, pcapng.ErrNotSegment):
		return size, false, nil
	case err != nil:
		return 0, false, err
	}
	done, err := pcapng.Finished(f, size)
	if done {
		return size, false, err
	}
	return end, true, err
}
