package replay

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

// capture is a file whose packets are sent.
type capture struct {
	name      string
	target    *nvme.Target
	number    uint32          // of the file in the disk queue
	size      int64           // bytes to read
	growing   bool            // a segment without an end marker: its packets may end before size
	links     []linktype.Type // of the interfaces described before the first packet
	extra     uint8           // for capfile.Parser.Extra
	copied    int64           // bytes copied to a temporary file, for a pipe or a compressed file
	cut       error           // why the temporary file is incomplete; nil: it is complete
	continues bool            // the recording continues from the previous file
}

// maxCaptures is the largest number of files that a flow opens.
const maxCaptures = 1024

// openCaptures opens the files of names, in order.
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
			one.continues = i > 0
			all = append(all, one)
		}
	}
	if len(all) > maxCaptures {
		return nil, fmt.Errorf("%d files are to be sent; %d at most are possible: name fewer of them", len(all), maxCaptures)
	}
	return all, nil
}

// findCaptures returns a file, or the segments of the flow whose to.file is this prefix.
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

// openCapture opens a file and determines how much of it can be read. It first copies a compressed
// file or a pipe to a temporary file.
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

// checkLinks refuses captures whose link type differs from the interface's. It does not check
// interfaces that are described after the first packet; their packets are skipped and counted.
func (r *reader) checkLinks(d netdev.Device) error {
	for i := range r.captures {
		c := &r.captures[i]
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

// readable returns how many bytes of a capture can be read, and whether it is a segment of unifiedd
// without an end marker. A file of another program is read up to its present size.
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
