// Xdp-send sends numbered packets on queue 0 of an interface, through
// github.com/asavie/xdp.
//
//	xdp-send INTERFACE COUNT SIZE
//
// A packet goes to the broadcast address. It has EtherType 0x88b5 and its number in eight bytes, big
// endian. Each further byte is the low byte of the number plus the place.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/asavie/xdp"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "xdp-send:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: xdp-send INTERFACE COUNT SIZE")
	}
	count, err := strconv.ParseUint(args[1], 10, 32)
	if err != nil {
		return fmt.Errorf("count: %w", err)
	}
	size, err := strconv.ParseUint(args[2], 10, 32)
	if err != nil || size < 22 || int(size) > xdp.DefaultSocketOptions.FrameSize {
		return fmt.Errorf("size %s: it must be from 22 to %d", args[2], xdp.DefaultSocketOptions.FrameSize)
	}
	link, err := net.InterfaceByName(args[0])
	if err != nil {
		return err
	}
	socket, err := xdp.NewSocket(link.Index, 0, nil)
	if err != nil {
		return fmt.Errorf("open a socket on %s: %w", args[0], err)
	}
	defer socket.Close()
	return send(socket, link.HardwareAddr, count, int(size))
}

// send sends all packets and waits until the kernel has completed them.
func send(socket *xdp.Socket, from net.HardwareAddr, count uint64, size int) error {
	last := time.Now()
	for sent, done := uint64(0), uint64(0); done < count; {
		descs := socket.GetDescs(min(socket.NumFreeTxSlots(), int(count-sent)))
		for i := range descs {
			descs[i].Len = uint32(size)
			write(socket.GetFrame(descs[i]), from, sent+uint64(i))
		}
		sent += uint64(socket.Transmit(descs))
		_, n, err := socket.Poll(100)
		if err != nil {
			return fmt.Errorf("wait for the kernel: %w", err)
		}
		if done += uint64(n); n > 0 {
			last = time.Now()
		}
		if time.Since(last) > 10*time.Second {
			return fmt.Errorf("the kernel is done with %d of %d packets and stops there", done, sent)
		}
	}
	return nil
}

func write(b []byte, from net.HardwareAddr, number uint64) {
	for i := range 6 {
		b[i] = 0xff
	}
	copy(b[6:], from)
	binary.BigEndian.PutUint16(b[12:], 0x88b5)
	binary.BigEndian.PutUint64(b[14:], number)
	for i := 22; i < len(b); i++ {
		b[i] = byte(number) + byte(i)
	}
}
