package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// asProgram makes the test binary run the program itself, so that tests run it as users do.
const asProgram = "UNIFIED_XDP_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program is the program, started at one end of a pair.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    bytes.Buffer
	errors *bufio.Reader
	said   strings.Builder // standard error
}

// start starts the program and waits until it prints its mode, or ends.
func start(t *testing.T, e *testenv.End, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: e.Command(os.Args[0], append(args, e.Ifname)...)}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stdout = &p.out
	pipe, err := p.cmd.StderrPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill() // a failed test left it running
			_ = p.cmd.Wait()
		}
	})
	p.errors = bufio.NewReader(pipe)
	line, _ := p.errors.ReadString('\n')
	p.said.WriteString(line)
	return p
}

// end waits until the program ends and returns its exit status.
func (p *program) end() int {
	p.t.Helper()
	watchdog := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer watchdog.Stop()
	rest, _ := io.ReadAll(p.errors)
	p.said.Write(rest)
	err := p.cmd.Wait()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// interrupt sends the signal of Ctrl-C.
func (p *program) interrupt() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		p.t.Fatal(err)
	}
}

// must waits for the program, which must succeed, and reads the JSON it printed.
func (p *program) must() (r result) {
	p.t.Helper()
	if status := p.end(); status != 0 {
		p.t.Fatalf("%q ended with status %d\n%s%s", p.cmd.Args, status, p.said.String(), p.out.String())
	}
	if err := json.Unmarshal(p.out.Bytes(), &r); err != nil {
		p.t.Fatalf("%q printed no JSON: %v\n%s", p.cmd.Args, err, p.out.String())
	}
	return r
}

// fails waits for the program, which must end with a status and print a text.
func (p *program) fails(status int, want string) {
	p.t.Helper()
	got := p.end()
	if text := p.said.String() + p.out.String(); got != status || !strings.Contains(text, want) {
		p.t.Errorf("%q ended with status %d, want %d and %q\n%s", p.cmd.Args, got, status, want, text)
	}
}

// newPair makes a pair and the memory for programs at both ends.
func newPair(t *testing.T, o testenv.PairOptions) *testenv.Pair {
	t.Helper()
	o.NoAddresses = true
	testenv.Root(t)
	testenv.HugePages(t, 48<<20)
	return testenv.NewPair(t, o)
}
