// Command etcd-peer is what a benchmark measures beside a group of unifiedd: an etcd server, and a
// client that puts one key after the other. It is a module of its own, so that unifiedd does not
// depend on etcd's server.
//
//	etcd-peer server [options of etcd]
//	etcd-peer load -to URL,URL,URL -size BYTES -warm TIME -for TIME
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	client "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	if len(os.Args) < 2 || os.Args[1] != "server" && os.Args[1] != "load" {
		fmt.Fprintln(os.Stderr, "usage: etcd-peer server|load [options]")
		os.Exit(2)
	}
	if os.Args[1] == "server" {
		etcdmain.Main(append(os.Args[:1:1], os.Args[2:]...))
		return
	}
	if err := run(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "etcd-peer load:", err)
		os.Exit(1)
	}
}

// result has the fields of what unified-flow-test load prints.
type result struct {
	Messages int     `json:"messages"`
	Seconds  float64 `json:"seconds"`
	Latency  struct {
		P50 int64 `json:"p50_ns"`
		P99 int64 `json:"p99_ns"`
	} `json:"latency_ns"`
}

// run puts values for a while, one at a time, and prints the result.
func run(args []string) error {
	fs := flag.NewFlagSet("load", flag.ContinueOnError)
	to := fs.String("to", "", "URLs of all servers, with commas")
	size := fs.Int("size", 64, "bytes of a value")
	warm := fs.Duration("warm", 200*time.Millisecond, "how long nothing is counted at first")
	span := fs.Duration("for", time.Second, "how long puts are counted then")
	if err := fs.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), *warm+*span+time.Minute)
	defer cancel()
	c, err := connect(ctx, strings.Split(*to, ","))
	if err != nil {
		return err
	}
	defer c.Close()
	took, err := put(ctx, c, *size, *warm, *span)
	if err != nil {
		return err
	}
	var r result
	for _, one := range took {
		r.Seconds += one.Seconds()
	}
	slices.Sort(took)
	r.Messages = len(took)
	r.Latency.P50, r.Latency.P99 = int64(took[(len(took)-1)/2]), int64(took[(len(took)-1)*99/100])
	return json.NewEncoder(os.Stdout).Encode(r)
}

// connect connects to the server that leads: another one would send each put to it.
func connect(ctx context.Context, servers []string) (*client.Client, error) {
	for {
		for _, url := range servers {
			c, err := client.New(client.Config{Endpoints: []string{url}, DialTimeout: 5 * time.Second})
			if err != nil {
				return nil, err
			}
			asked, cancel := context.WithTimeout(ctx, time.Second)
			s, err := c.Status(asked, url)
			cancel()
			if err == nil && s.Leader != 0 && s.Leader == s.Header.MemberId {
				return c, nil
			}
			c.Close()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for a server that leads: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// put puts values under new keys, as a log appends, and returns how long each put took after the
// warm-up: at least one.
func put(ctx context.Context, c *client.Client, size int, warm, span time.Duration) (took []time.Duration, err error) {
	value := make([]byte, size)
	key := make([]byte, 8)
	n := uint64(0)
	for begin := time.Now(); len(took) == 0 || time.Since(begin) < warm+span; {
		n++
		binary.BigEndian.PutUint64(key, n)
		since := time.Now()
		if _, err := c.Put(ctx, string(key), string(value)); err != nil {
			return nil, err
		}
		if since.Sub(begin) >= warm {
			took = append(took, time.Since(since))
		}
	}
	return took, nil
}
