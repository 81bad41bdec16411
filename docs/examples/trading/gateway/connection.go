package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// connection is a connection of which the kernel says when bytes have arrived at the interface.
type connection struct {
	tcp       *net.TCPConn
	raw       syscall.RawConn
	unstamped uint64 // pieces without a time of the kernel
}

// newConnection asks the kernel for times.
func newConnection(c *net.TCPConn) (*connection, error) {
	raw, err := c.SyscallConn()
	if err == nil {
		outer := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
		err = errors.Join(outer, err)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("have the kernel say when orders arrive: %w", err), c.Close())
	}
	return &connection{tcp: c, raw: raw}, nil
}

// read reads once, and returns when the last of the bytes has arrived. The error is os.ErrDeadlineExceeded when nothing
// has come until a time.
func (c *connection) read(b []byte, until time.Time) (n int, at time.Time, err error) {
	if err := c.tcp.SetReadDeadline(until); err != nil {
		return 0, at, err
	}
	var beside [64]byte
	k := 0
	outer := c.raw.Read(func(fd uintptr) bool {
		n, k, _, _, err = unix.Recvmsg(int(fd), b, beside[:], unix.MSG_DONTWAIT)
		return !errors.Is(err, unix.EAGAIN)
	})
	if err := errors.Join(outer, err); err != nil {
		return 0, at, err
	}
	if n == 0 {
		return 0, at, errors.New("the trader has closed the connection without a logout")
	}
	at, err = c.stamp(beside[:k])
	return n, at, err
}

// stamp returns the time beside a message. If there is none, as for the first ones while the kernel begins to take
// times, it is now.
func (c *connection) stamp(b []byte) (time.Time, error) {
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return time.Time{}, err
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:]))), nil
		}
	}
	c.unstamped++
	return time.Now(), nil
}

func (c *connection) write(b []byte) error {
	_, err := c.tcp.Write(b)
	return err
}

func (c *connection) close() error {
	if err := c.tcp.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil // by a signal
}
