package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/unifiedd/unifiedd/flows/cluster"
)

// Bounds of the wait before a new lease is asked for.
const leastWait, mostWait = 200 * time.Millisecond, 2 * time.Second

// run has one lease after the other.
func (k *Client) run(ctx context.Context) {
	f := following{client: k, ctx: ctx}
	defer f.end()
	for wait := leastWait; ctx.Err() == nil; {
		begun := time.Now()
		err := k.session(ctx, &f)
		if ctx.Err() != nil {
			return
		}
		f.begin() // also if no lease is granted: an etcd that is full, or permits this daemon to read only, tells where peers are
		switch {
		case errors.Is(err, errLeaseLost):
			k.count(CountLeaseLost)
			k.config.Log.Warn("the lease in etcd has ended: registering anew", "name", k.config.Name)
		default:
			k.failed(ctx, err)
		}
		if time.Since(begun) > k.config.Lease {
			wait = leastWait
		}
		sleep(ctx, wait/2+rand.N(wait))
		wait = min(2*wait, mostWait)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

var errLeaseLost = errors.New("the lease has ended")

// registration is what is registered under a lease. It belongs to the goroutine of run.
type registration struct {
	lease clientv3.LeaseID
	text  []byte // what was put last; nil: nothing
	at    int64  // revision of the put
}

// session has one lease, and returns why it ended.
func (k *Client) session(ctx context.Context, f *following) error {
	short, done := k.short(ctx)
	granted, err := k.client.Grant(short, int64(max(k.config.Lease/time.Second, 1)))
	done()
	if err != nil {
		return err
	}
	k.answered()
	r := &registration{lease: granted.ID}
	defer k.leave(ctx, r)
	ctx, cancel := context.WithCancel(ctx)
	var guarding sync.WaitGroup
	defer guarding.Wait()
	defer cancel()
	alive, err := k.client.KeepAlive(clientv3.WithRequireLeader(ctx), r.lease)
	if err != nil {
		return err
	}
	removed := make(chan struct{}, 1)
	f.end() // etcd may have forgotten everything: then its revisions have begun again, and a watch waits for one that it had
	f.begin()
	if k.config.Record != nil {
		guarding.Go(func() { k.guard(ctx, removed) })
	}
	return k.keep(ctx, r, alive, removed)
}

// keep keeps the daemon registered until the lease ends.
func (k *Client) keep(ctx context.Context, r *registration, alive <-chan *clientv3.LeaseKeepAliveResponse, removed <-chan struct{}) error {
	every := k.config.timeout() / 2
	tick := time.NewTicker(every)
	defer tick.Stop()
	heard := time.Now()
	if err := k.register(ctx, r); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, more := <-alive:
			if !more {
				return errLeaseLost
			}
			heard = time.Now()
			k.answered()
			continue
		case <-removed:
			r.text = nil
		case <-tick.C:
			if time.Since(heard) > k.config.Lease/3+2*time.Second || time.Since(heard) > k.config.Lease*2/3 {
				if err := k.ask(ctx); err != nil { // the lease may live on: it is not given up before its time
					k.failed(ctx, err)
					continue
				}
				heard = time.Now()
				k.answered()
			}
		}
		switch err := k.register(ctx, r); {
		case errors.Is(err, errLeaseLost):
			return err
		case err != nil && ctx.Err() == nil:
			k.failed(ctx, err)
		}
	}
}

// ask asks etcd for something that costs nothing.
func (k *Client) ask(ctx context.Context) error {
	ctx, done := k.short(ctx)
	defer done()
	_, err := k.client.Get(ctx, k.key(k.config.Name), clientv3.WithCountOnly())
	return err
}

// register puts the daemon's record, if it is another than before. It does not take a name that another instance has.
func (k *Client) register(ctx context.Context, r *registration) error {
	if k.config.Record == nil {
		return nil
	}
	record := k.config.Record()
	record.Name, record.Instance = k.config.Name, k.instance
	text, err := record.Encode()
	if err != nil {
		k.unfit(err)
		return nil
	}
	if bytes.Equal(text, r.text) {
		return nil
	}
	ctx, done := k.short(ctx)
	defer done()
	key := k.key(k.config.Name)
	put := clientv3.OpPut(key, string(text), clientv3.WithLease(r.lease))
	for at := r.at; ; {
		answer, err := k.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", at)).Then(put).Else(clientv3.OpGet(key)).Commit()
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			return errLeaseLost
		case err != nil:
			return err
		}
		if answer.Succeeded {
			k.registered(r, text, answer.Header.Revision)
			return nil
		}
		found := answer.Responses[0].GetResponseRange().Kvs
		switch {
		case len(found) == 0:
			at = 0 // it was removed meanwhile
		case ownerOf(found[0].Value) == k.instance:
			at = found[0].ModRevision // from an earlier lease of ours
		default:
			k.taken(ownerOf(found[0].Value))
			return nil
		}
	}
}

// unfit records that others would refuse this daemon's record.
func (k *Client) unfit(err error) {
	fresh := false
	k.config.Names.Update(func(s *cluster.State) {
		fresh = s.Lacks != err.Error()
		s.Registered, s.Lacks = false, err.Error()
	})
	if fresh {
		k.config.Log.Error("the daemon cannot be registered", "name", k.config.Name, "err", err)
	}
}

// ownerOf returns the instance that wrote a record; empty if it does not say so.
func ownerOf(text []byte) string {
	var r struct{ Instance string }
	if len(text) > cluster.MaxRecord || json.Unmarshal(text, &r) != nil {
		return ""
	}
	return r.Instance[:min(len(r.Instance), 64)]
}

func (k *Client) registered(r *registration, text []byte, at int64) {
	first := r.text == nil
	r.text, r.at = text, at
	k.config.Names.Update(func(s *cluster.State) {
		s.Registered, s.Taken, s.Lacks = true, "", ""
		if first {
			s.Counts[CountRegistered]++
		}
	})
	if first {
		k.config.Log.Info("registered", "name", k.config.Name, "lease", k.config.Lease)
	}
}

// taken records that another instance has the name.
func (k *Client) taken(by string) {
	if by == "" {
		by = "unknown"
	}
	fresh := false
	k.config.Names.Update(func(s *cluster.State) {
		fresh = s.Taken != by
		s.Registered, s.Taken = false, by
		s.Lacks = "another daemon is registered as " + k.config.Name + ": give one of them another name in cluster.name, or wait until its lease has ended"
		if fresh {
			s.Counts[CountTaken]++
		}
	})
	if fresh {
		k.config.Log.Warn("another daemon has the name: waiting until its lease has ended", "name", k.config.Name, "instance", by)
	}
}

// leave gives the name back.
func (k *Client) leave(ctx context.Context, r *registration) {
	k.config.Names.Update(func(s *cluster.State) { s.Registered = false })
	if ctx.Err() == nil {
		return // the lease has ended, or etcd is away
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer done()
	_, _ = k.client.Revoke(ctx, r.lease) // else it ends by itself
}

// guard says when somebody removes the daemon's record.
func (k *Client) guard(ctx context.Context, removed chan<- struct{}) {
	for ctx.Err() == nil {
		for w := range k.client.Watch(clientv3.WithRequireLeader(ctx), k.key(k.config.Name), clientv3.WithFilterPut()) {
			if len(w.Events) > 0 {
				select {
				case removed <- struct{}{}:
				default:
				}
			}
		}
		sleep(ctx, leastWait)
	}
}
