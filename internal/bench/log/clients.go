package log

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/internal/pairs"
)

// sample is the measurement of a run.
type sample struct {
	records float64
	seconds float64
	typical float64       // nanoseconds from sending a record to its acknowledgement: the median,
	tail    float64       // and the 99th percentile
	machine time.Duration // not idle, of all processors together
	spent   time.Duration // of that, by the processes of both ends
}

// result is the JSON that the clients of both sides print.
type result struct {
	Messages float64 `json:"messages"`
	Seconds  float64 `json:"seconds"`
	Latency  struct {
		P50 float64 `json:"p50_ns"`
		P99 float64 `json:"p99_ns"`
	} `json:"latency_ns"`
}

// measure runs the clients of a server to their end. They print a word on standard error when they
// begin to count and when they end. The cost of the run is the time for which the machine was busy
// between the two.
func measure(server int, cmd *exec.Cmd) (s sample, err error) {
	var out bytes.Buffer
	cmd.Stdout = &out
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return s, err
	}
	if err := cmd.Start(); err != nil {
		return s, err
	}
	said, pids := new(strings.Builder), []int{server, cmd.Process.Pid}
	err = s.watch(io.TeeReader(pipe, said), pids)
	if end := cmd.Wait(); end != nil {
		return s, fmt.Errorf("%s: %w: %s", cmd, end, strings.TrimSpace(said.String()))
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w", cmd, err)
	}
	return s, s.read(out.Bytes())
}

// watch reads the clients' output to its end, and notes the processor time between the two words.
func (s *sample) watch(said io.Reader, pids []int) error {
	begun, ended := false, false
	for lines := bufio.NewScanner(said); lines.Scan(); {
		busy, err := pairs.Busy()
		if err != nil {
			return err
		}
		switch by := spent(pids...); lines.Text() {
		case "measuring":
			begun, s.machine, s.spent = true, busy, by
		case "measured":
			ended, s.machine, s.spent = begun, busy-s.machine, by-s.spent
		}
	}
	if !ended {
		return errors.New("it did not say when it was measuring")
	}
	return nil
}

func (s *sample) read(out []byte) error {
	var r result
	if err := json.Unmarshal(out, &r); err != nil {
		return fmt.Errorf("read the clients' result %q: %w", out, err)
	}
	if r.Messages <= 0 || r.Seconds <= 0 || r.Latency.P50 <= 0 || r.Latency.P99 < r.Latency.P50 {
		return fmt.Errorf("the clients measured %+v", r)
	}
	s.records, s.seconds, s.typical, s.tail = r.Messages, r.Seconds, r.Latency.P50, r.Latency.P99
	return nil
}
