package segment

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// sealSegments seals retired segments, and deletes old ones when new ones have packets.
func (s *Manager) sealSegments() {
	defer s.running.Done()
	for {
		select {
		case <-s.begun:
			s.prune()
		case full, more := <-s.retired:
			if !more {
				return
			}
			s.finish(full)
			s.prune()
		}
	}
}

// finish seals and closes a retired segment.
func (s *Manager) finish(full *Segment) {
	kept, err := s.seal(full)
	if err = errors.Join(err, s.closeTarget(full)); err != nil {
		err = fmt.Errorf("finish segment %s: %w (the next start mends it)", full.Path(), err)
		s.sealErrors = append(s.sealErrors, err)
		s.log.Error("could not complete a segment", "err", err)
	} else if kept {
		s.notifyComplete(full.Path())
	}
	s.sealed.Store(int64(full.Number))
}

// notifyComplete passes a complete segment to the indexer and to Config.Complete.
func (s *Manager) notifyComplete(path string) {
	if s.indexer != nil {
		s.indexer.add(path)
	}
	if s.onComplete != nil {
		s.onComplete(path)
	}
}

// closeTarget closes the file of a segment, or frees its slot.
func (s *Manager) closeTarget(full *Segment) error {
	if s.ring != nil {
		s.freeSlot()
		return nil
	}
	return full.Target.Close()
}

// seal writes the end marker after a segment's last batch, and truncates the file. A damaged
// segment is recovered instead. seal returns false if the segment has no packets and is deleted.
func (s *Manager) seal(full *Segment) (kept bool, err error) {
	if s.ring != nil {
		return true, s.sealSlot(full)
	}
	full.stopPreallocation()
	f, err := full.reopenBuffered()
	if err != nil {
		return true, err
	}
	defer f.Close()
	if isRemoved(f) {
		s.log.Warn("segment was removed before it was complete", "path", full.Path())
		return true, nil
	}
	if full.Damaged {
		return s.sealDamaged(f, full.Path())
	}
	if full.Sequence == 0 {
		if removed, err := s.removeEmpty(f, full.Path()); removed || err != nil {
			return false, err
		}
	}
	end, err := writeEnd(f, full.Batch(full.Next, full.Last.Packets))
	if err != nil {
		return true, err
	}
	if err := f.Truncate(end); err != nil {
		return true, err
	}
	return true, f.Sync()
}

// sealDamaged recovers a segment of a run that failed.
func (s *Manager) sealDamaged(f *os.File, path string) (kept bool, err error) {
	r, err := s.recoverFile(f, path)
	if err != nil || !nothingIn(&r) {
		return true, err
	}
	removed, err := s.removeEmpty(f, path)
	return !removed, err
}

// nothingIn reports whether no batch was ever begun in a segment.
func nothingIn(r *pcapng.Report) bool { return r.Batches == 0 && r.Torn == 0 }

// writeEnd writes the end marker, a batch without packets. With it the next start need not read the
// segment. writeEnd returns the segment's end.
func writeEnd(f io.WriterAt, b pcapng.Batch) (end int64, err error) {
	b.Length, b.Durable = b.Align, b.Offset
	last := make([]byte, b.Align)
	pcapng.PutBatchHeader(last, &b)
	_, err = f.WriteAt(last, int64(b.Offset))
	return int64(b.Offset) + int64(b.Align), err
}

// recover recovers the segments of an earlier run and returns the number of the next segment.
func (s *Manager) recover() (int, error) {
	switch {
	case s.to.Device != "":
		return s.openDevice()
	case s.to.Rotate != (config.Rotate{}):
		s.names.rotation = &rotation{Rotate: s.to.Rotate, path: s.to.File}
		return 1, s.names.rotation.open(s.names)
	case s.to.Exact:
		return 1, s.replaceExact()
	}
	s.names.Names = pcapng.NewNames(s.to.File)
	found, err := s.names.list()
	if err != nil {
		return 0, err
	}
	for _, e := range found {
		if err := s.recoverOne(e); err != nil {
			return 0, fmt.Errorf("recover %s: %w", e.Path, err)
		}
	}
	if s.manifest != nil { // recovery may have removed files, and a log's numbers have no gap
		if found, err = s.names.list(); err != nil {
			return 0, err
		}
	}
	number := 1
	for _, e := range found {
		number = max(number, e.Number+1)
	}
	s.newestBefore = s.newestInFiles()
	return number, nil
}

// recoverOne recovers an incomplete segment. It removes a prepared segment that was never written
// to. It leaves a file alone that only has the name of a segment.
func (s *Manager) recoverOne(e pcapng.Named) error {
	f, err := s.names.open(e.Path, os.O_RDWR)
	if errors.Is(err, os.ErrPermission) && isComplete(e.Path) {
		return nil // archived read-only
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lockFile(int(f.Fd())); err != nil {
		return err
	}
	if e.Prepared {
		return s.recoverPrepared(f, e)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	n, done, err := pcapng.Count(f, size)
	if err != nil || done && n > 0 {
		return err
	}
	if !done {
		r, err := s.recoverFile(f, e.Path)
		if errors.Is(err, pcapng.ErrNotSegment) {
			s.unreadable++
			s.log.Error("a file with the name of a segment has no readable head: it is left out", "path", e.Path, "err", err)
			return nil
		}
		if err != nil || !nothingIn(&r) {
			return err
		}
	}
	if removed, err := s.removeEmpty(f, e.Path); removed || err != nil {
		s.log.Info("a segment without packets is removed", "path", e.Path)
		return err
	}
	return nil
}

// isComplete reports whether a read-only file is a complete segment.
func isComplete(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return false
	}
	done, err := pcapng.Finished(f, size)
	return done && err == nil
}

// recoverPrepared recovers a segment without a final name. It gives the segment its final name, or
// removes it if it holds nothing.
func (s *Manager) recoverPrepared(f *os.File, e pcapng.Named) error {
	report, err := s.recoverFile(f, e.Path)
	switch {
	case errors.Is(err, pcapng.ErrNotSegment): // no head yet
		return s.names.remove(e.Path)
	case err != nil:
		return err
	case report.Batches == 0 && !s.inManifest(e.Number): // no packet was captured into it
		return s.names.remove(e.Path)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := s.names.rename(e.Path, s.names.Final(e.Number, info.ModTime())); err != nil {
		return err
	}
	return s.names.dir.Sync()
}

// recoverFile recovers a segment, logs a report and marks the segment complete.
func (s *Manager) recoverFile(f pcapng.File, path string) (pcapng.Report, error) {
	r, err := pcapng.Recover(f, pcapng.Options{})
	if err != nil {
		return r, err
	}
	s.logReport(path, r)
	if err := markRecovered(f, r); err != nil {
		s.log.Warn("a recovered segment will be read again at the next start", "path", path, "err", err)
	}
	return r, nil
}

// logReport logs what recovery did.
func (s *Manager) logReport(path string, r pcapng.Report) {
	if !r.Clean {
		s.log.Warn("segment recovered", "path", path, "what", r.String())
	}
	if r.DurableLost() {
		s.log.Error("segment is shorter than its durable position (the disk or its controller may ignore flushes)",
			"path", path, "durable", r.Durable, "kept", r.Kept)
	}
}

// markRecovered writes the end marker of a recovered segment.
func markRecovered(f pcapng.File, r pcapng.Report) error {
	if done, err := pcapng.Finished(f, r.Kept); done || err != nil {
		return err
	}
	_, err := writeEnd(f, endMarker(r))
	return errors.Join(err, f.Sync())
}

// endMarker returns the end marker for the batches that recovery kept.
func endMarker(r pcapng.Report) pcapng.Batch {
	b := pcapng.Batch{
		Segment: r.Segment, Align: r.Align, Sequence: r.Batches + r.MissingBatches + 1,
		Offset: uint64(r.Kept), FirstPacket: r.FirstPacket, Mended: true,
	}
	if r.Packets > 0 {
		b.FirstPacket = r.LastPacket + 1
	}
	return b
}

// failing are the errors with which the kernel reports that a disk failed (blk_errors in
// block/blk-core.c).
var failing = []unix.Errno{unix.EIO, unix.ENODATA, unix.EREMOTEIO, unix.ETIMEDOUT, unix.ENOLINK, unix.ENODEV, unix.EILSEQ, unix.EBADE}

// advise adds a remedy to an error of Open.
func (s *Manager) advise(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT) && s.to.Device != "":
		return fmt.Errorf("%w (attach the disk, or name another)", err)
	case errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w (mount it for writing; if it was, the kernel's log says what happened)", err)
	case slices.ContainsFunc(failing, func(e unix.Errno) bool { return errors.Is(err, e) }):
		return fmt.Errorf("%w (the disk fails: the kernel's log says more)", err)
	}
	return err
}
