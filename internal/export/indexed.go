package export

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/unifiedd/unifiedd/internal/index"
	"github.com/unifiedd/unifiedd/internal/need"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// AddFile is AddSegment for a file of size bytes. If it has an index that helps, only the parts
// that may have wanted packets are read. The result is the same.
func (e *Exporter) AddFile(f *os.File, size int64) error {
	if !e.want.bounded() && e.want.Need.Kind == need.Nothing {
		return e.AddSegment(f, size)
	}
	found, parts, err := e.lookUp(f)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return e.AddSegment(f, size)
	case err != nil:
		if e.sum.BadIndexes++; e.sum.BadIndexes == 1 {
			e.sum.WhyBad = fmt.Errorf("%s: %w", f.Name()+index.Suffix, err)
		}
		return e.AddSegment(f, size)
	}
	return e.addParts(f, size, found, parts)
}

// lookUp reads the index of a segment file.
func (e *Exporter) lookUp(f *os.File) (found index.Summary, parts []pcapng.Part, err error) {
	x, err := index.Open(f)
	if err != nil {
		return found, nil, err
	}
	defer x.Close()
	parts, err = x.Find(index.Query{From: e.want.From, To: e.want.To, Need: e.want.Need})
	return x.Summary(), parts, err
}

// addParts exports parts of a segment file.
func (e *Exporter) addParts(f *os.File, size int64, found index.Summary, parts []pcapng.Part) error {
	if len(parts) == 0 && e.want.bounded() && e.want.Need.Kind == need.Nothing {
		e.sum.Outside++
		return nil
	}
	if err := e.beginSegment(f, size); err != nil {
		return err
	}
	report, err := pcapng.ReadParts(f, size, parts, e.batch)
	report.MissingBatches = max(report.MissingBatches, found.Missing)
	e.count(report)
	e.sum.Indexed++
	e.sum.PassedOver += found.Batches - min(found.Batches, report.Batches)
	return err
}
