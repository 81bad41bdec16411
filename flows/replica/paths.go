package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// Several paths. A member that gets a leader's records chooses over which path they come. It leaves a path over which
// the leader is silent for a quarter of Suspect, and asks for the records from the end of its log on over the next one.
// It may, without another report, because since its last one the log has got the leader's records alone, in order: all
// links are fenced before the next report. That the leader is silent is noticed as over one path: a link that is
// made again does not count as a sign of life.

const (
	// pathsOfSuspect is the part of Suspect after which a silent path is left.
	pathsOfSuspect = 4
	// leastPathWait and mostPathWait are the times until a path that has failed is tried again. The time doubles each
	// time that the path fails within steady after it was taken.
	leastPathWait, mostPathWait, steady = 500 * time.Millisecond, 8 * time.Second, 10 * time.Second
	// leastRound and mostRound are the waits when all paths have failed.
	leastRound, mostRound = 5 * time.Millisecond, 100 * time.Millisecond
)

// PathMode is how a member uses several paths.
type PathMode string

// The path modes.
const (
	Standby PathMode = "standby" // it prefers the first path
	Active  PathMode = "active"  // see DriverConfig.Spread
)

func modeOf(spread bool) PathMode {
	if spread {
		return Active
	}
	return Standby
}

var (
	errPathSilent = errors.New("the leader was silent over this path")
	errBetterPath = errors.New("a path that is preferred is well again")
)

// leftError says that the leader has ended a link. It asks for another report.
type leftError struct{ cause error }

func (e *leftError) Error() string { return "the other member has ended the link: " + e.cause.Error() }

func (e *leftError) Unwrap() error { return e.cause }

// overPaths gets a leader's records until the links are fenced, or the leader has ended a link.
func (d *Driver) overPaths(w Want) error {
	round, k := leastRound, (*Link)(nil)
	for {
		d.ways.prefer(d.preferred(w.Member))
		w.Path = d.ways.choose(w.Member, time.Now())
		if w.Address = d.addressOver(w.Member, w.Path); w.Address == "" {
			return fmt.Errorf("where member %d is over path %d, is not known", w.Member, w.Path)
		}
		took, err := d.overPath(&w, &k)
		d.ways.leaves(w.Path, err, time.Now())
		if _, left := errors.AsType[*leftError](err); left || d.ctx.Err() != nil {
			return err
		}
		if fenced := d.resume(&w, k, err); fenced != nil {
			return errors.Join(err, fenced)
		}
		if k = nil; took {
			round = leastRound
			d.log.Info("the records of the leader come over another path", "member", w.Member, "epoch", w.Epoch, "left", w.Path, "err", err)
			continue
		}
		d.log.Info("no link to the leader over a path", "member", w.Member, "path", w.Path, "address", w.Address, "err", err)
		if d.ways.allFailed(time.Now()) {
			d.pause(round)
			round = min(2*round, mostRound)
		}
	}
}

// preferred returns the path over which this member prefers to get a leader's records: the first one, or with Spread the
// one at this member's place among those that follow the leader. So the followers of each leader are spread evenly, in
// the same way on all members: the place is that by number.
func (d *Driver) preferred(leader uint32) (path int) {
	if !d.config.Spread {
		return 0
	}
	for number, p := range *d.peers.Load() {
		if !p.Witness && number != leader && number < d.config.Self {
			path++
		}
	}
	return path % len(d.config.Links.paths)
}

// addressOver returns the address of a member's RDMA listener on a path; empty: it is not known.
func (d *Driver) addressOver(member uint32, path int) string {
	p := (*d.peers.Load())[member]
	switch {
	case path == 0 && len(p.Records) > 0:
		return p.Records[0]
	case path > 0 && path <= len(p.Further):
		return p.Further[path-1]
	}
	return ""
}

// resume ends a link and completes what is wanted, as the log is then. k is nil if there was no link. It fails if the
// links were fenced since the records were wanted.
func (d *Driver) resume(w *Want, k *Link, cause error) error {
	return d.config.Do(func() error {
		l := d.config.Links
		if l.Fence() != w.Fence {
			return errFenced
		}
		if k != nil {
			if err := l.End(k, cause); err != nil {
				return err
			}
		}
		end := d.config.Replicator.log.End
		w.Next, w.Of, w.again = end.Position+1, end.Epoch, true
		return nil
	})
}

// overPath gets records over one path until it fails, or a preferred one is well again. took reports whether there was a
// link, which is *k then. The caller ends it; its queue pair is closed later.
func (d *Driver) overPath(w *Want, k **Link) (took bool, err error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.config.Suspect/2)
	one, conn, err := d.config.Links.Dial(ctx, d.config.Do, *w)
	cancel()
	if err != nil {
		return false, err
	}
	*k = one
	d.ways.takes(w.Path, time.Now())
	gone := make(chan error, 1)
	d.links.Go(func() {
		_, err := conn.Receive() // nothing is said: it returns when the connection ends
		gone <- err
	})
	err = d.watchPath(w, one, gone)
	d.links.Go(func() { // closing a queue pair may take long
		if err := d.config.Links.Finish(d.config.Do, one, err); err != nil {
			d.log.Warn("could not end a link", "member", w.Member, "err", err)
		}
		_ = conn.Close() // the other side may have closed it
	})
	return true, err
}

// watchPath returns why a link is left.
func (d *Driver) watchPath(w *Want, k *Link, gone <-chan error) error {
	limit := d.config.Suspect / pathsOfSuspect
	tick := time.NewTicker(max(limit/8, time.Millisecond))
	defer tick.Stop()
	began, well := time.Now(), make(chan struct{}, 1)
	asked := began
	for {
		select {
		case err := <-gone:
			if errors.Is(err, io.EOF) || err == nil {
				return &leftError{errors.Join(k.causeOr(errClosed), err)}
			}
			return err
		case <-k.Ended():
			if _, violates := errors.AsType[protocol.Reason](k.Cause()); violates {
				return &leftError{k.Cause()}
			}
			return k.Cause()
		case <-d.ctx.Done():
			return d.ctx.Err()
		case <-well:
			return errBetterPath
		case now := <-tick.C:
			if now.Sub(began) > limit && now.Sub(time.Unix(0, d.config.Links.Heard())) > limit {
				return errPathSilent
			}
			d.ways.prefer(d.preferred(w.Member)) // the members may have changed
			if better, due := d.ways.better(w.Path, now); due && now.Sub(asked) >= leastPathWait {
				asked = now
				d.links.Go(func() { d.probe(w.Member, better, well) })
			}
		}
	}
}

// probe says whether a path is well: whether the other member's listener answers over it. That leaves a connection
// without a handshake there, which it counts as closed.
func (d *Driver) probe(member uint32, path int, well chan<- struct{}) {
	conn, err := (&net.Dialer{Timeout: d.config.Suspect / pathsOfSuspect}).DialContext(d.ctx, "tcp", d.addressOver(member, path))
	if err != nil {
		d.ways.unreached(path, err, time.Now())
		return
	}
	_ = conn.Close() // nothing was said
	d.ways.clear(path)
	select {
	case well <- struct{}{}:
	default: // it is known
	}
}

// pause waits, unless the driver ends.
func (d *Driver) pause(t time.Duration) {
	select {
	case <-time.After(t):
	case <-d.ctx.Done():
	}
}

// dialAny connects to a member over the first of its paths that works.
func (d *Driver) dialAny(w Want) (k *Link, conn *connect.Conn, err error) {
	for path := range d.config.Links.paths {
		if w.Path = path; path > 0 {
			w.Address, w.others = d.addressOver(w.Member, path), nil
		}
		var e error
		if k, conn, e = d.dial(w); e == nil {
			return k, conn, nil
		}
		err = errors.Join(err, e)
	}
	return nil, nil, err
}
