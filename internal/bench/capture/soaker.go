package capture

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"time"
)

// reading is a time since some fixed moment, and the idle time of all processors since then.
type reading struct{ wall, idle time.Duration }

// soaker is the program that counts idle time.
type soaker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startSoaker(program string, cpus int) (*soaker, error) {
	s := &soaker{cmd: exec.Command(program)}
	for i := range cpus {
		s.cmd.Args = append(s.cmd.Args, strconv.Itoa(i))
	}
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewReader(out)
	return s, s.cmd.Start()
}

func (s *soaker) read() (r reading, err error) {
	if _, err = io.WriteString(s.in, "\n"); err == nil {
		_, err = fmt.Fscan(s.out, (*int64)(&r.wall), (*int64)(&r.idle))
	}
	if err != nil {
		err = fmt.Errorf("ask the soaker: %w", err)
	}
	return r, err
}

func (s *soaker) close() error { return errors.Join(s.in.Close(), s.cmd.Wait()) }
