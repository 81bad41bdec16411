package initramfs

import (
	"fmt"
	"io"
	"strings"
)

// archive writes a cpio archive in the "new ASCII" form, which the kernel accepts
// (Documentation/driver-api/early-userspace/buffer-format.rst). It keeps the first error.
type archive struct {
	w     io.Writer
	inode int
	err   error
}

const (
	modeDir  = 0o040755
	modeFile = 0o100755
	trailer  = "TRAILER!!!"
)

func (a *archive) dir(name string) { a.entry(name, modeDir, nil) }

func (a *archive) file(name string, content []byte) { a.entry(name, modeFile, content) }

// close writes the end mark.
func (a *archive) close() error {
	a.entry(trailer, 0, nil)
	return a.err
}

// entry writes a header of thirteen numbers, the name and the content, each padded
// to four bytes.
func (a *archive) entry(name string, mode uint32, content []byte) {
	a.inode++
	name = strings.TrimPrefix(name, "/") + "\x00"
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
	a.write([]byte(head + name))
	a.pad(len(head) + len(name))
	a.write(content)
	a.pad(len(content))
}

func (a *archive) pad(n int) { a.write(make([]byte, -n&3)) }

func (a *archive) write(b []byte) {
	if a.err == nil {
		_, a.err = a.w.Write(b)
	}
}
