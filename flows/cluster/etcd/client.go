package etcd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/status"

	"github.com/unifiedd/unifiedd/flows/cluster"
)

// Config configures a Client.
type Config struct {
	Endpoints []string // URLs, http or https
	TLS       Files    // needed with https
	Prefix    string   // of all keys; begins and ends with a slash
	Name      string   // of this daemon
	Lease     time.Duration
	// Record returns what is registered; Name and Instance are set here. It is called on a goroutine of the client,
	// several times a lease. nil: the client registers nothing.
	Record func() cluster.Record
	Names  *cluster.Names
	Log    *slog.Logger
}

// Client registers a daemon and finds others.
type Client struct {
	config   Config
	instance string
	client   *clientv3.Client
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// Names of the counts in [cluster.State].
const (
	CountRegistered = "registered"  // the daemon was registered
	CountFailed     = "failed"      // etcd did not answer, or refused a request
	CountLeaseLost  = "lease_lost"  // the lease ended while etcd did not answer, or somebody revoked it
	CountTaken      = "name_taken"  // another instance has the daemon's name
	CountWatchEnded = "watch_ended" // a name had to be read anew
)

// Counts are all of them.
var Counts = []string{CountRegistered, CountFailed, CountLeaseLost, CountTaken, CountWatchEnded}

// Open begins to register the daemon and to follow the names that flows use. It does not wait for etcd. The error is
// about the configuration and the files of TLS. The caller closes the client.
func Open(c Config) (*Client, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // does not fail
	k := &Client{config: c, instance: hex.EncodeToString(id[:])}
	var err error
	if k.client, err = dial(&c); err != nil {
		return nil, err
	}
	c.Names.Update(func(s *cluster.State) {
		s.Since, s.Lease = time.Now(), c.Lease
		for _, name := range Counts {
			s.Counts[name] = 0
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	k.running.Go(func() { k.run(ctx) })
	return k, nil
}

// Bounds of the waits of gRPC between two attempts to connect.
const leastConnectWait, mostConnectWait = 100 * time.Millisecond, 2 * time.Second

// dial makes a client of etcd, which connects by itself.
func dial(c *Config) (*clientv3.Client, error) {
	secure, err := c.TLS.load(c.Endpoints)
	if err != nil {
		return nil, err
	}
	wait := backoff.Config{BaseDelay: leastConnectWait, Multiplier: 1.6, Jitter: 0.3, MaxDelay: mostConnectWait}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints, TLS: secure, Logger: zap.NewNop(), MaxCallRecvMsgSize: maxAnswer, MaxUnaryRetries: 2, // the error then says what is wrong
		DialTimeout: c.timeout(), DialKeepAliveTime: max(c.Lease, leastPing), DialKeepAliveTimeout: c.timeout(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: wait, MinConnectTimeout: mostConnectWait})},
	})
	if err != nil {
		return nil, fmt.Errorf("make a client of etcd: %w", err)
	}
	return client, nil
}

// maxAnswer bounds what etcd may send at once, in bytes: a page of records. leastPing is the shortest time between
// pings that servers of gRPC tolerate.
const (
	maxAnswer = 32 << 20
	leastPing = 10 * time.Second
)

// timeout is how long a request may take: with a lease in danger there is time for another one.
func (c *Config) timeout() time.Duration {
	return min(max(c.Lease/3, 500*time.Millisecond), 5*time.Second)
}

// Instance is what tells this client from an earlier one with the same name.
func (k *Client) Instance() string { return k.instance }

// Close gives the name back, for which it waits a second at most, and ends the client. It may be called again.
func (k *Client) Close() error {
	k.cancel()
	k.running.Wait()
	if err := k.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close the client of etcd: %w", err)
	}
	return nil
}

// key is the key of a daemon.
func (k *Client) key(name string) string { return daemons(k.config.Prefix) + name }

// daemons is what the keys of all daemons begin with.
func daemons(prefix string) string { return prefix + "daemons/" }

// answered records that etcd answers.
func (k *Client) answered() {
	now, back := time.Now(), false
	k.config.Names.Update(func(s *cluster.State) {
		s.Answered, s.Error = now, ""
		if !s.Up {
			s.Up, s.Since, back = true, now, true
		}
	})
	if back {
		k.config.Log.Info("etcd answers", "endpoints", k.config.Endpoints)
	}
}

// failed records that etcd does not answer, or that it refuses.
func (k *Client) failed(ctx context.Context, err error) {
	text, gone := k.reason(ctx, err), false
	k.config.Names.Update(func(s *cluster.State) {
		s.Counts[CountFailed]++
		gone = s.Error == ""
		s.Error = text
		if s.Up {
			s.Up, s.Since, gone = false, time.Now(), true
		}
	})
	level := slog.LevelDebug
	if gone {
		level = slog.LevelWarn
	}
	k.config.Log.Log(ctx, level, "etcd does not answer, or refuses: flows go on, and peers are where etcd says, or said last", "endpoints", k.config.Endpoints, "err", text)
}

// explain returns the text of an error of gRPC without what surrounds it, on one line.
func explain(err error) string {
	text := err.Error()
	if s, ok := status.FromError(err); ok {
		text = s.Message()
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text)
	return text[:min(len(text), 400)]
}

func (k *Client) count(name string) {
	k.config.Names.Update(func(s *cluster.State) { s.Counts[name]++ })
}

// short returns a context for one request.
func (k *Client) short(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, k.config.timeout())
}
