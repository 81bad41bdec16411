// Package transcript plays one side of a recorded TCP conversation of two programs against our
// implementation, over a real connection. It is for tests.
package transcript

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Side is the side that wrote a line.
type Side string

const (
	Client Side = "client"
	Server Side = "server"
)

// Line is data that one side wrote at once.
type Line struct {
	From  Side
	Bytes []byte
}

// Transcript is a conversation in order.
type Transcript []Line

// Read reads a file of lines: the side, and its data as a Go string. Lines that begin with #
// describe the source.
func Read(name string) (Transcript, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var all Transcript
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		side, quoted, _ := strings.Cut(line, " ")
		written, err := strconv.Unquote(quoted)
		if err != nil || Side(side) != Client && Side(side) != Server {
			return nil, fmt.Errorf("%s:%d is not a side and a quoted string", name, i+1)
		}
		all = append(all, Line{Side(side), []byte(written)})
	}
	return all, nil
}

// By returns the data that one side wrote.
func (t Transcript) By(s Side) (all [][]byte) {
	for _, l := range t {
		if l.From == s {
			all = append(all, l.Bytes)
		}
	}
	return all
}

// timeout is how long Play waits for the other side.
const timeout = 10 * time.Second

// Play plays one side of the conversation. It writes that side's data in turn, and compares the
// data that it reads with the other side's. At the end it closes the connection; the peer must not
// send more.
func (t Transcript) Play(conn net.Conn, as Side) error {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	for i, l := range t {
		if err := l.play(conn, as); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if rest, err := io.ReadAll(conn); len(rest) > 0 {
		return fmt.Errorf("%q follows the last line (%v)", rest, err)
	}
	return nil
}

func (l Line) play(conn net.Conn, as Side) error {
	if l.From == as {
		_, err := conn.Write(l.Bytes)
		return err
	}
	got := make([]byte, len(l.Bytes))
	n, err := io.ReadFull(conn, got)
	if err != nil {
		return fmt.Errorf("%q instead of %q: %w", got[:n], l.Bytes, err)
	}
	if !bytes.Equal(got, l.Bytes) {
		return fmt.Errorf("%q instead of %q", got, l.Bytes)
	}
	return nil
}

// Pair makes the two ends of a TCP connection on loopback.
func Pair() (client, server net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	server, err = l.Accept()
	return client, server, err
}
