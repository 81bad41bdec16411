package attached_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
)

// A program gets packets of a flow, reads them where they are, and gives them back.
func ExampleClient_Receive() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	k, err := attached.Attach(attached.Config{Socket: socket, Name: "strategy"})
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()
	packets, err := k.Receive("md", 0)
	if err != nil {
		log.Fatal(err)
	}
	defer packets.Close()
	batch := make([]attached.Message, 64)
	for taken := 0; taken < 100; {
		n, err := packets.Poll(batch)
		if err != nil {
			log.Fatal(err)
		}
		for _, m := range batch[:n] {
			if taken++; taken == 1 {
				fmt.Println("a packet of", len(m.Data), "bytes")
			}
		}
		packets.Release(batch[:n]) // Data must not be used any more
		if n > 0 {
			continue
		}
		if err := packets.Wait(ctx, time.Second); err != nil { // also attaches again if the daemon was restarted
			log.Fatal(err)
		}
	}
	// Output: a packet of 64 bytes
}

// A program writes messages into memory that the daemon reads, and learns when each is as safe as the flow promises.
func ExampleClient_Send() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	k, err := attached.Attach(attached.Config{Socket: socket, Name: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()
	orders, err := k.Send("orders", 0)
	if err != nil {
		log.Fatal(err)
	}
	defer orders.Close()
	frame, err := orders.Claim()
	if err != nil {
		log.Fatal(err) // ErrFull: all frames have messages that are not done
	}
	sequence, err := orders.Commit(frame, copy(frame.Data, "buy 100"))
	if err != nil {
		log.Fatal(err)
	}
	receipts := make([]attached.Receipt, 64)
	for done := false; !done; {
		n, err := orders.Poll(receipts)
		if err != nil {
			log.Fatal(err)
		}
		for _, r := range receipts[:n] {
			if r.Err != nil {
				log.Fatal(r.Err)
			}
			done = done || r.Sequence == sequence
			fmt.Println("message", r.Sequence, "is durable at position", r.Position)
		}
		if n > 0 {
			continue
		}
		if err := orders.Wait(ctx, time.Second); err != nil { // also sends again what was not done, after a restart
			log.Fatal(err)
		}
	}
	// Output: message 1 is durable at position 1
}

// A program reads blocks of a file that a flow serves. The disk writes them into memory that the program reads.
func ExampleClient_Blocks() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	k, err := attached.Attach(attached.Config{Socket: socket, Name: "reader"})
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()
	image, err := k.Blocks("image", 0)
	if err != nil {
		log.Fatal(err)
	}
	defer image.Close()
	if _, err := image.Request(4096, 4096); err != nil { // offset and length are multiples of Align
		log.Fatal(err)
	}
	answers := make([]attached.Block, 16)
	for {
		n, err := image.Poll(answers)
		if err != nil {
			log.Fatal(err)
		}
		for _, b := range answers[:n] {
			if b.Err != nil {
				log.Fatal(b.Err)
			}
			fmt.Printf("%d bytes from %d: %s\n", len(b.Data), b.Offset, b.Data[:12])
		}
		image.Release(answers[:n])
		if n > 0 {
			break
		}
		if err := image.Wait(ctx, time.Second); err != nil {
			log.Fatal(err)
		}
	}
	// Output: 4096 bytes from 4096: second block
}

// A program writes a message once, and another one reads it from there. The daemon is not in the path.
func ExampleClient_WriteChannel() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	handler, err := attached.Attach(attached.Config{Socket: socket, Name: "handler"})
	if err != nil {
		log.Fatal(err)
	}
	defer handler.Close()
	writer, err := handler.WriteChannel("book")
	if err != nil {
		log.Fatal(err)
	}
	defer writer.Close()

	monitor, err := attached.Attach(attached.Config{Socket: socket, Name: "monitor"}) // usually another process
	if err != nil {
		log.Fatal(err)
	}
	defer monitor.Close()
	reader, err := monitor.ReadChannel("book")
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()

	if _, err := writer.Write([]byte("bid 99, ask 101")); err != nil {
		log.Fatal(err) // ErrFull: a reader for which the writer waits is behind
	}
	message := make([]byte, reader.Longest())
	for {
		n, sequence, ok, err := reader.Read(message)
		if err != nil {
			log.Fatal(err)
		}
		if ok {
			fmt.Printf("message %d: %s; %d lost\n", sequence, message[:n], reader.Lost())
			break
		}
		if err := reader.Wait(ctx, time.Second); err != nil {
			log.Fatal(err)
		}
	}
	// Output: message 1: bid 99, ask 101; 0 lost
}

// A program logs in at an exchange on a connection of its own, and gives that to the daemon, which sends orders on it. What
// the exchange sends the program reads.
func ExampleClient_Give() {
	c, err := net.Dial("tcp", "exchange.example.net:4001")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "log me in")
	answer := make([]byte, 512)
	if _, err := c.Read(answer); err != nil {
		log.Fatal(err)
	}
	k, err := attached.Attach(attached.Config{Name: "session"})
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close()
	given, err := k.Give("orders", c.(*net.TCPConn))
	if err != nil {
		log.Fatal(err) // a *RefusedError says what does not fit
	}
	for given.Err() == nil {
		n, err := given.Read(answer)
		if err != nil {
			break
		}
		fmt.Printf("the exchange says %q\n", answer[:n])
	}
	if err := given.Close(); err == nil { // the daemon does not send on it any more
		fmt.Fprint(c, "log me out")
	}
}
