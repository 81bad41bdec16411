package pcapng

import "io"

// walk calls fn with each block of a file of size bytes that starts with a section. First it checks that the
// block is one that this package writes. It ends with the first error, its own (a FormatError) or fn's.
func walk(r io.ReaderAt, size int64, fn func(Block) error) error {
	rd := reader{w: newWindow(r, size), end: size}
	var c checker
	for {
		b, err := rd.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.block(b); err != nil {
			return err
		}
		if err := fn(b); err != nil {
			return err
		}
	}
}
