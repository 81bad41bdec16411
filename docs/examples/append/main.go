// Append writes three records to the log of docs/tutorials/log-from-go.md, and prints where each is durable. TestCommands
// runs it.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/umem"
)

func main() {
	// A time limit: while the daemon is away, a client waits and tries again.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := client.Open(client.Config{Device: "roce:eth1", Memory: 32 << 20, Pages: umem.Ordinary})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	wal, err := c.Append(ctx, client.AppendConfig{Address: "10.0.0.1:7471", Flow: "wal"})
	if err != nil {
		log.Fatal(err)
	}
	defer wal.Close()
	for _, trade := range []string{"buy 100", "sell 40", "buy 7"} {
		number, err := wal.Send(ctx, []byte(trade))
		if err != nil {
			log.Fatal(err)
		}
		receipt, err := wal.Wait(ctx, number)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q is durable at position %d\n", trade, receipt.Position)
	}
}
