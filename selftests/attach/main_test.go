package attach

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// program is the path of the daemon, and flowTest that of its clients. Both are built once.
var program, flowTest string

// role is the environment variable that makes this binary one of the attached programs of the tests.
const role = "UNIFIEDD_ATTACH_ROLE"

func TestMain(m *testing.M) {
	if do := roles[os.Getenv(role)]; do != nil {
		if err := do(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	status := daemon.WithPrograms(m.Run, &program, &flowTest)
	if checked != "" {
		_ = os.RemoveAll(checked) // it is only left behind
	}
	os.Exit(status)
}

var roles = map[string]func(args []string) error{"writer": write, "reader": read, "updater": updateState, "hostile": beHostile}

// attempts attaches until it succeeds: a program that was killed may still have the name.
func attempts(socket, name string, session uint64) (*attached.Client, error) {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		k, err := attached.Attach(attached.Config{Socket: socket, Name: name, Session: session})
		if err == nil || time.Now().After(end) {
			return k, err
		}
	}
}

// opened opens a port. The daemon may be killed meanwhile, and its flows begin after it listens.
func opened[T any](k **attached.Client, socket, name string, session uint64, open func() (T, error)) (port T, err error) {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if port, err = open(); err == nil || time.Now().After(end) {
			return port, err
		}
		if errors.Is(err, attached.ErrGone) {
			_ = (*k).Close() // it is gone
			if *k, err = attempts(socket, name, session); err != nil {
				return port, err
			}
		}
	}
}

// write sends messages, each with its sequence in it, as fast as they are done, and keeps in a file how many are.
func write(args []string) error {
	socket, flow, file := args[0], args[1], args[2]
	session, err := strconv.ParseUint(args[3], 10, 64)
	if err != nil {
		return err
	}
	done, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	k, err := attempts(socket, "writer", session)
	if err != nil {
		return err
	}
	s, err := opened(&k, socket, "writer", session, func() (*attached.Sender, error) { return k.Send(flow, 0) })
	if err != nil {
		return err
	}
	var receipts [64]attached.Receipt
	for {
		for {
			f, err := s.Claim()
			if err != nil {
				break
			}
			if _, err := s.Commit(f, fill(f.Data, s.Next())); err != nil {
				return err
			}
		}
		n, _ := s.Poll(receipts[:]) // Wait returns what is wrong
		for _, r := range receipts[:n] {
			if r.Err != nil {
				return r.Err
			}
		}
		if n > 0 {
			var b [8]byte
			binary.NativeEndian.PutUint64(b[:], receipts[n-1].Sequence)
			if _, err := done.WriteAt(b[:], 0); err != nil {
				return err
			}
			continue
		}
		if err := s.Wait(noLimit, time.Second); err != nil {
			return err
		}
	}
}

// fill writes a message that follows from its sequence, and returns its length.
func fill(b []byte, sequence uint64) int {
	n := 16 + int(sequence%500)
	binary.NativeEndian.PutUint64(b, sequence)
	for i := 8; i < n; i++ {
		b[i] = byte(sequence + uint64(i))
	}
	return n
}

// read takes packets and releases them, in turns of different lengths.
func read(args []string) error {
	k, err := attempts(args[0], "reader", 0)
	if err != nil {
		return err
	}
	r, err := opened(&k, args[0], "reader", 0, func() (*attached.Receiver, error) { return k.Receive(args[1], 0) })
	if err != nil {
		return err
	}
	var held []attached.Message
	for turn := 0; ; turn++ {
		var got [64]attached.Message
		n, _ := r.Poll(got[:1+turn%64])
		for _, m := range got[:n] {
			if len(m.Data) != 200 || binary.BigEndian.Uint64(m.Data[42:]) == 0 {
				return fmt.Errorf("packet %d has %d bytes", m.Position, len(m.Data))
			}
		}
		held = append(held, got[:n]...)
		if len(held) > turn%200 {
			r.Release(held)
			held = held[:0]
		}
		if n == 0 {
			if err := r.Wait(noLimit, time.Second); err != nil {
				return err
			}
		}
	}
}
