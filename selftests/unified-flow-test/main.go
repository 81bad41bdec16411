package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/flows/cluster"
	"github.com/unifiedd/unifiedd/flows/cluster/etcd"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

func main() { harness.Main(run) }

// run is the program; it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	all, err := parse(args, stderr)
	return harness.Status("unified-flow-test", stderr, err, func() error { return work(ctx, all, stdout) })
}

// work runs all commands at the same time, and prints their results in the order of the commands.
// If one fails, the others end.
func work(ctx context.Context, all []options, out io.Writer) (err error) {
	names, end, err := find(all)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	k, err := open(all, names)
	if err != nil {
		return err
	}
	if k != nil {
		defer func() { err = errors.Join(err, k.Close()) }()
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	results, errs := make([]result, len(all)), make([]error, len(all))
	var working sync.WaitGroup
	for i, o := range all {
		working.Go(func() {
			if results[i], errs[i] = o.run(ctx, k); errs[i] != nil {
				fail(fmt.Errorf("%s failed", o.command.Name))
			}
		})
	}
	working.Wait()
	for i, r := range results {
		if errs[i] == nil {
			errs[i] = r.print(out, all[i].json)
		}
	}
	return errors.Join(errs...)
}

// lease is the time of a lease in etcd, and so bounds how long its client waits for an answer. Nothing is registered.
const lease = 10 * time.Second

// find begins to ask the etcd of the first command that has one where daemons are. names is nil if none has.
func find(all []options) (names *cluster.Names, end func() error, err error) {
	for i := range all {
		o := &all[i]
		if o.etcd == "" {
			continue
		}
		c := etcd.Config{Endpoints: strings.Split(o.etcd, ","), Prefix: "/unifiedd/", Lease: lease, Names: new(cluster.Names), Log: slog.Default()}
		if strings.HasPrefix(o.etcd, "https://") {
			files, err := o.files()
			if err != nil {
				return nil, nil, err
			}
			c.TLS = etcd.Files{Certificate: files[0], Key: files[1], Authority: files[2]}
		}
		engine, err := etcd.Open(c)
		if err != nil {
			return nil, nil, err
		}
		return c.Names, engine.Close, nil
	}
	return nil, func() error { return nil }, nil
}

// open opens the device that a command names; nil if none does.
func open(all []options, names *cluster.Names) (*client.Client, error) {
	for _, o := range all {
		if o.device == "" {
			continue
		}
		c, err := o.config()
		if err != nil {
			return nil, err
		}
		c.Names = names
		return client.Open(c)
	}
	return nil, nil
}

// run runs the command within its time limit.
func (o options) run(ctx context.Context, k *client.Client) (result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, errTimeout)
	defer cancel()
	r, err := o.command.work(ctx, k, o)
	if err != nil {
		err = fmt.Errorf("%s: %w", o.command.Name, err)
	}
	r.Command = o.command.Name
	return r, err
}
