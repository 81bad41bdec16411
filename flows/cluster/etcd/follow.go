package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// following is followAll in a goroutine of its own, which begins anew with each lease, and goes on without one.
type following struct {
	client *Client
	ctx    context.Context
	cancel context.CancelFunc // nil: it is not running
	done   sync.WaitGroup
}

// begin begins to follow, unless it has begun.
func (f *following) begin() {
	if f.cancel != nil {
		return
	}
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(f.ctx)
	f.done.Go(func() { f.client.followAll(ctx) })
}

// end ends begin.
func (f *following) end() {
	if f.cancel != nil {
		f.cancel()
		f.done.Wait()
		f.cancel = nil
	}
}

// followAll follows the names that flows use, as they change, until ctx ends.
func (k *Client) followAll(ctx context.Context) {
	following := map[string]context.CancelFunc{}
	var all sync.WaitGroup
	defer all.Wait()
	for {
		names, change := k.config.Names.Wanted()
		wanted := map[string]bool{}
		for _, name := range names {
			wanted[name] = true
			if following[name] == nil {
				one, cancel := context.WithCancel(ctx)
				following[name] = cancel
				all.Go(func() { k.follow(one, name) })
			}
		}
		for name, cancel := range following {
			if !wanted[name] {
				cancel()
				delete(following, name)
			}
		}
		select {
		case <-change:
		case <-ctx.Done():
			for _, cancel := range following {
				cancel()
			}
			return
		}
	}
}

// follow tells the names where one daemon is, until ctx ends.
func (k *Client) follow(ctx context.Context, name string) {
	said := ""
	for wait := leastWait; ctx.Err() == nil; wait = min(2*wait, mostWait) {
		begun := time.Now()
		read, err := k.watch(ctx, name)
		if text := explain(err); ctx.Err() == nil && (read || text != said) { // while etcd is away each attempt fails
			said = text
			k.count(CountWatchEnded)
			k.config.Log.Info("reading anew where a daemon is", "name", name, "err", text)
		}
		if time.Since(begun) > k.config.Lease {
			wait = leastWait
		}
		sleep(ctx, wait)
	}
}

var errWatchEnded = errors.New("the watch has ended")

// watch reads the record of a daemon, and then each change of it. It returns whether it has read it, and why it ended.
func (k *Client) watch(ctx context.Context, name string) (read bool, err error) {
	short, done := k.short(ctx)
	now, err := k.client.Get(short, k.key(name))
	done()
	if err != nil {
		return false, err
	}
	if len(now.Kvs) == 0 {
		k.gone(name)
	} else {
		k.found(name, now.Kvs[0].Value)
	}
	for w := range k.client.Watch(clientv3.WithRequireLeader(ctx), k.key(name), clientv3.WithRev(now.Header.Revision+1)) {
		if err := w.Err(); err != nil {
			return true, err
		}
		for _, e := range w.Events {
			if e.Type == clientv3.EventTypeDelete {
				k.gone(name)
			} else {
				k.found(name, e.Kv.Value)
			}
		}
	}
	return true, errWatchEnded
}

func (k *Client) found(name string, text []byte) {
	if err := k.config.Names.Found(name, text); err != nil {
		k.config.Log.Warn("the record of a daemon is refused: its last good one stays in use", "name", name, "err", err)
	}
}

func (k *Client) gone(name string) {
	k.config.Names.Gone(name)
	k.config.Log.Info("no daemon is registered under a name that flows use: they go on where it was", "name", name)
}
