package flows

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// finish completes segments as they come back.
func (s *store) finish() {
	defer s.running.Done()
	for full := range s.back {
		err := errors.Join(s.complete(full), full.target.Close())
		if err != nil {
			err = fmt.Errorf("finish segment %s: %w", full.name(), err)
			s.failed = append(s.failed, err)
			s.log.Error("segment is not complete", "why", err)
		}
	}
}

// complete ends a segment after its last batch. One whose batches did not all
// reach the disk is recovered instead.
func (s *store) complete(full *segment) error {
	full.stopGrowing()
	f, err := os.OpenFile(full.name(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if full.damaged {
		_, err := s.mend(f, full.name())
		return err
	}
	end := full.next
	if full.takes(uint64(full.align)) {
		b := full.batch(end, full.last.packets)
		b.Length = full.align
		last := make([]byte, full.align)
		pcapng.PutBatchHeader(last, &b)
		if _, err := f.WriteAt(last, int64(end)); err != nil {
			return err
		}
		end += uint64(full.align)
	}
	if s.to.Device == "" {
		if err := f.Truncate(int64(end)); err != nil {
			return err
		}
	}
	return f.Sync()
}

// recover mends what an earlier run left and returns the next segment's number.
func (s *store) recover() (int, error) {
	if !s.rotates() {
		return 1, s.replaceExact()
	}
	s.names = newNames(s.to.File)
	found, err := s.names.list()
	if err != nil {
		return 0, err
	}
	number := 1
	for _, e := range found {
		number = max(number, e.number+1)
		if err := s.recoverOne(e); err != nil {
			return 0, fmt.Errorf("recover %s: %w", e.path, err)
		}
	}
	return number, nil
}

// recoverOne mends one segment unless it is complete. One that was prepared and
// never written to is removed.
func (s *store) recoverOne(e existing) error {
	f, err := os.OpenFile(e.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if e.next {
		return s.recoverPrepared(f, e)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if done, err := pcapng.Finished(f, size); done || err != nil {
		return err
	}
	_, err = s.mend(f, e.path)
	return err
}

func (s *store) recoverPrepared(f *os.File, e existing) error {
	report, err := s.mend(f, e.path)
	switch {
	case errors.Is(err, pcapng.ErrNotSegment): // no head yet
		return os.Remove(e.path)
	case err != nil:
		return err
	case report.Batches == 0: // nothing was captured into it
		return os.Remove(e.path)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return s.rename(e.path, s.names.named(e.number, info.ModTime()))
}

// mend recovers a segment and says what it did.
func (s *store) mend(f *os.File, path string) (pcapng.Report, error) {
	r, err := pcapng.Recover(f, pcapng.Options{})
	if err == nil && !r.Clean {
		s.log.Warn("recovered a segment", "path", path, "what", r.String())
	}
	return r, err
}

// prune removes the oldest segments beyond those to keep.
func (s *store) prune() {
	if !s.rotates() || s.to.Segment.Keep == 0 {
		return
	}
	found, err := s.names.list()
	if err != nil {
		s.log.Warn("old segments stay", "why", err)
		return
	}
	var named []existing
	for _, e := range found {
		if !e.next {
			named = append(named, e)
		}
	}
	for len(named) > s.to.Segment.Keep {
		if err := os.Remove(named[0].path); err != nil {
			s.log.Warn("an old segment stays", "why", err)
		}
		named = named[1:]
	}
}
