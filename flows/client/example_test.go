package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/flows/cluster"
	"github.com/unifiedd/unifiedd/flows/cluster/etcd"
)

// A program writes a record to a log, and knows when it is safe.
func ExampleClient_Append() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // while the daemon is away, calls wait
	defer cancel()
	c, err := client.Open(client.Config{Device: "roce:eth1"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	wal, err := c.Append(ctx, client.AppendConfig{Address: "10.0.0.1:7471", Flow: "wal"})
	if err != nil {
		log.Fatal(err)
	}
	defer wal.Close()
	number, err := wal.Send(ctx, []byte("a trade"))
	if err != nil {
		log.Fatal(err)
	}
	receipt, err := wal.Wait(ctx, number)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("durable at position", receipt.Position)
}

// A program names a log by its daemon and flow, and follows it when it moves to another machine.
func ExampleClient_Append_name() {
	ctx := context.Background()
	names := new(cluster.Names)
	registry, err := etcd.Open(etcd.Config{Endpoints: []string{"http://10.0.0.5:2379"}, Prefix: "/unifiedd/", Lease: 10 * time.Second, Names: names})
	if err != nil {
		log.Fatal(err)
	}
	defer registry.Close()
	c, err := client.Open(client.Config{Device: "roce:eth1", Names: names})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	orders, err := c.Append(ctx, client.AppendConfig{Peer: "storage-1/orders"})
	if err != nil {
		log.Fatal(err)
	}
	defer orders.Close()
	if _, err := orders.Send(ctx, []byte("an order")); err != nil {
		log.Fatal(err)
	}
}

// A program appends to a group over two devices. It goes on with the leader when one of the leader's links fails.
func ExampleClient_Append_paths() {
	ctx := context.Background()
	c, err := client.Open(client.Config{Device: "roce:eth2", Further: []string{"roce:eth3"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	orders, err := c.Append(ctx, client.AppendConfig{
		Flow: "orders", Address: "10.0.0.1:7471", Others: []string{"10.0.0.2:7471", "10.0.0.3:7471"},
		Paths: []client.Path{{Device: "roce:eth3", Address: "10.1.0.1:7471", Others: []string{"10.1.0.2:7471", "10.1.0.3:7471"}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer orders.Close()
	if _, err := orders.Send(ctx, []byte("an order")); err != nil {
		log.Fatal(err)
	}
}

// A program receives the messages that a flow sends to its peers.
func ExampleClient_Listen() {
	ctx := context.Background()
	c, err := client.Open(client.Config{Device: "roce:eth1"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	feed, err := c.Listen(ctx, client.SinkConfig{Listen: ":7481", Flow: "feed"})
	if err != nil {
		log.Fatal(err)
	}
	defer feed.Close()
	for {
		m, err := feed.Receive(ctx) // also acknowledges the previous message
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(m.Sequence, m.Stamp, len(m.Payload))
	}
}

// A program reads blocks that a flow serves into its own memory.
func ExampleClient_Blocks() {
	ctx := context.Background()
	c, err := client.Open(client.Config{Device: "roce:eth1"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	image, err := c.Blocks(ctx, client.BlocksConfig{Address: "10.0.0.1:7472", Flow: "blocks"})
	if err != nil {
		log.Fatal(err)
	}
	defer image.Close()
	block := make([]byte, 4096)
	if err := image.Read(ctx, 0, block); err != nil {
		log.Fatal(err)
	}
}

// A program reads a state of a daemon, which it names, and follows it when it moves to another machine.
func ExampleClient_State() {
	ctx := context.Background()
	names := new(cluster.Names)
	registry, err := etcd.Open(etcd.Config{Endpoints: []string{"http://10.0.0.5:2379"}, Prefix: "/unifiedd/", Lease: 10 * time.Second, Names: names})
	if err != nil {
		log.Fatal(err)
	}
	defer registry.Close()
	c, err := client.Open(client.Config{Device: "roce:eth1", Names: names})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	book, err := c.State(ctx, client.StateConfig{Peer: "desk/book"})
	if err != nil {
		log.Fatal(err)
	}
	defer book.Close()
	payload := make([]byte, book.Room())
	n, version, err := book.Get(7, payload)
	switch {
	case errors.Is(err, client.ErrDisconnected):
		fmt.Println("the state has moved, or has no daemon now: what it had is written again")
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println(payload[:n], version)
	}
}
