package journal

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// LinkType is LINKTYPE_USER0, which logs have.
const LinkType = 147

// described is what the head of each segment says of the run that wrote it, and owned where records have owners: releases that do not know
// these refuse it in words.
const (
	described = "log from position %d in run %016x"
	owned     = "log of owners from position %d in run %016x"
)

// Source describes a log in the head of a segment: the flow's name, the position of the first record of this run of the flow,
// a random number for the run, and the longest message in bytes, header included.
func Source(flow string, start, run uint64, longest uint32) pcapng.Interface {
	return pcapng.Interface{Name: flow, Description: fmt.Sprintf(described, start, run), SnapLen: longest, LinkType: LinkType}
}

// Owned is a source whose records have owners, see [protocol.OwnerOf].
func Owned(s pcapng.Interface, start, run uint64) pcapng.Interface {
	s.Description = fmt.Sprintf(owned, start, run)
	return s
}

// verified is what the heads of runs say in which every payload was checked when it came.
const verified = "payloads were verified"

// Verified is a source that says so. A payload that is bad in the log was then damaged on its way to the disk, or there; else its client may have
// sent it so.
func Verified(s pcapng.Interface) pcapng.Interface {
	s.Comment = verified
	return s
}

// ErrNotLog is matched when segments are not those of a log.
var ErrNotLog = errors.New("no log of messages")

// origin is what a head says of its run.
type origin struct {
	start, run uint64
	verified   bool
	owned      bool // records have owners
}

func originOf(head *pcapng.Head) (o origin, err error) {
	f := head.Interface(0)
	if f.LinkType != LinkType {
		return o, fmt.Errorf("%w: its packets are of link type %d (is it a capture?)", ErrNotLog, f.LinkType)
	}
	if !o.parse(f.Description) {
		return o, fmt.Errorf("%w: its head says %.80q, and not where a log begins", ErrNotLog, f.Description)
	}
	o.verified = f.Comment == verified
	return o, nil
}

// parse reads a description that is nothing else.
func (o *origin) parse(description string) bool {
	for _, form := range []string{described, owned} {
		if _, err := fmt.Sscanf(description, form, &o.start, &o.run); err == nil && o.start > 0 && fmt.Sprintf(form, o.start, o.run) == description {
			o.owned = form == owned
			return true
		}
	}
	return false
}
