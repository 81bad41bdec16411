package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// report writes the results of the tests: their output unchanged, or as the events of go test
// -json. The guest itself counts as a package. Its tests are that it boots and that its kernel
// reports no fault while the tests of a package run.
type report struct {
	out    io.Writer
	events bool
	line   string // of the kernel
	failed bool
}

// event is an event as go doc test2json describes it.
type event struct {
	Action  string
	Package string
	Test    string `json:",omitempty"`
	Output  string `json:",omitempty"`
}

func (r *report) event(e event) {
	if !r.events {
		return
	}
	e.Package = "lab/" + r.line
	text, err := json.Marshal(e)
	if err == nil {
		_, _ = fmt.Fprintf(r.out, "%s\n", text)
	}
}

func (r *report) begin() { r.event(event{Action: "start"}) }

func (r *report) end() {
	if r.failed {
		r.event(event{Action: "fail"})
		return
	}
	r.event(event{Action: "pass"})
}

// test reports one of the guest's own tests.
func (r *report) test(name string, err error) {
	r.event(event{Action: "run", Test: name})
	if err == nil {
		r.event(event{Action: "pass", Test: name})
		return
	}
	r.failed = true
	r.event(event{Action: "output", Test: name, Output: err.Error() + "\n"})
	r.event(event{Action: "fail", Test: name})
}

// converter returns the writer for the output of a package's tests. close waits until all of it is written.
func (r *report) converter(ctx context.Context, importPath string) (in io.Writer, close func() error, err error) {
	if !r.events {
		fmt.Fprintf(r.out, "== %s on Linux %s\n", importPath, r.line)
		return r.out, func() error { return nil }, nil
	}
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", "-t", "-p", importPath+"@"+r.line)
	var complaint strings.Builder
	cmd.Stdout, cmd.Stderr = r.out, &complaint
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("start test2json: %w", err)
	}
	return pipe, func() error {
		if err := errors.Join(pipe.Close(), cmd.Wait()); err != nil {
			return fmt.Errorf("convert the tests' output: %w %s", err, complaint.String())
		}
		return nil
	}, nil
}
