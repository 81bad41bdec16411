package etcd

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/unifiedd/unifiedd/flows/cluster"
)

// Listed is a daemon that is registered.
type Listed struct {
	Name    string
	Record  *cluster.Record // nil: it is refused
	Refused error           // why
	Lease   int64           // under which it is registered
}

const (
	pageSize = 256     // daemons that are read at once
	mostRead = 1 << 16 // daemons
)

// List reads all daemons, in the order of their names.
func (k *Client) List(ctx context.Context) (all []Listed, err error) {
	from, end := daemons(k.config.Prefix), clientv3.GetPrefixRangeEnd(daemons(k.config.Prefix))
	for len(all) < mostRead {
		answer, err := k.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize))
		if err != nil {
			return all, fmt.Errorf("read the daemons from etcd: %s", explain(err))
		}
		for _, kv := range answer.Kvs {
			from = string(kv.Key) + "\x00"
			one := Listed{Name: printed(strings.TrimPrefix(string(kv.Key), daemons(k.config.Prefix))), Lease: kv.Lease}
			one.Record, one.Refused = cluster.Parse(one.Name, kv.Value)
			all = append(all, one)
		}
		if !answer.More {
			break
		}
	}
	return all, nil
}

// printed returns the name in a key as far as it can be printed.
func printed(name string) string {
	if cluster.ValidName(name) == nil {
		return name
	}
	return fmt.Sprintf("%.80q", name)
}
