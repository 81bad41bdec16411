package network

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// run is the result of one run of a receiver.
type run struct {
	packets, waits, lost float64
	cpu                  time.Duration // of the process
	machine              time.Duration // of all processors
}

// result is the JSON that both receivers print. One reports its waits in all, the other per packet.
type result struct {
	Packets       float64 `json:"received_packets"`
	Lost          float64 `json:"lost_packets"`
	Waits         float64 `json:"waits"`
	WaitsOfPacket float64 `json:"waits_per_packet"`
}

// receiver is a program that reports on standard error that it is receiving, runs until it is
// interrupted, and prints a result.
type receiver struct {
	cmd    *exec.Cmd
	out    bytes.Buffer
	errors *bufio.Reader
	said   strings.Builder
}

// launch starts a receiver and waits until it is ready.
func launch(cmd *exec.Cmd) (*receiver, error) {
	r := &receiver{cmd: cmd}
	cmd.Stdout = &r.out
	pipe, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	r.errors = bufio.NewReader(pipe)
	for !strings.Contains(r.said.String(), "receiving") {
		line, err := r.errors.ReadString('\n')
		r.said.WriteString(line)
		if err != nil {
			_, err = r.end()
			return nil, errors.Join(fmt.Errorf("%s ended before it received", cmd), err)
		}
	}
	return r, nil
}

// observe returns the processor time of the receiver and of the machine while f ran, plus a moment
// for the last packets.
func (r *receiver) observe(f func() error) (cpu, machine time.Duration, err error) {
	cpu, err = processTime(r.cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	if machine, err = busyTime(); err != nil {
		return 0, 0, err
	}
	if err := f(); err != nil {
		return 0, 0, err
	}
	time.Sleep(50 * time.Millisecond)
	after, err := processTime(r.cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	busy, err := busyTime()
	return after - cpu, busy - machine, err
}

// end interrupts the receiver and reads its result.
func (r *receiver) end() (run, error) {
	_ = r.cmd.Process.Signal(os.Interrupt) // it may have ended already; Wait returns how
	rest, _ := io.ReadAll(r.errors)
	r.said.Write(rest)
	if err := r.cmd.Wait(); err != nil {
		return run{}, fmt.Errorf("%s: %w: %s", r.cmd, err, strings.TrimSpace(r.said.String()))
	}
	var got result
	if err := json.Unmarshal(r.out.Bytes(), &got); err != nil {
		return run{}, fmt.Errorf("result of %s: %w", r.cmd, err)
	}
	if got.Packets == 0 {
		return run{}, fmt.Errorf("%s received nothing", r.cmd)
	}
	return run{packets: got.Packets, lost: got.Lost, waits: got.Waits + got.WaitsOfPacket*got.Packets}, nil
}
