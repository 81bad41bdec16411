package storage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// Work is what both programs do.
type Work struct {
	Path  string
	Size  uint64 // bytes of the target that are used
	Mode  string // randread or randwrite, of both programs
	Depth int    // operations at a time
	Batch int    // operations handed over at once; zero: each program's default
	Rate  bool   // measure no latency: reading an emulated clock costs more than an operation
	Node  bool   // the path is an NVMe node, which takes commands
}

// blockSize is the bytes of each operation.
const blockSize = 4096

func (w Work) name(target string) string {
	what := map[string]string{"randread": "random read", "randwrite": "random write"}[w.Mode]
	return fmt.Sprintf("%s, %s of 4 KiB, depth %d", target, what, w.Depth)
}

// run is the result of one run of a program.
type run struct {
	operations float64
	rate       float64       // operations per second
	cpu        time.Duration // of the whole process
}

// Program is one of the two.
type Program struct {
	path string
	cpu  int // to run on
	args func(w Work, span time.Duration) []string
	read func(out []byte) (run, error)
}

// Ours is unified-nvme-test, on one CPU.
func Ours(path string, cpu int) *Program { return &Program{path, cpu, oursArgs, oursRead} }

// Fio is fio, on one CPU.
func Fio(path string, cpu int) *Program { return &Program{path, cpu, fioArgs, fioRead} }

// measure runs the program for a time span. A span of zero means one operation.
func (p *Program) measure(ctx context.Context, w Work, span time.Duration) (run, error) {
	out, used, err := bench.Run(ctx, p.cpu, p.path, p.args(w, span)...)
	if err != nil {
		return run{}, err
	}
	r, err := p.read(out)
	if err == nil && (r.operations < 1 || r.rate <= 0) {
		err = errors.New("it did nothing")
	}
	if err != nil {
		return run{}, fmt.Errorf("result of %s: %w", p.path, err)
	}
	r.cpu = used.CPU()
	return r, nil
}

// fio's options that do not change.
var fioFixed = []string{"--name=bench", "--fixedbufs", "--registerfiles", "--norandommap",
	"--randrepeat=1", "--scramble_buffers=0", "--output-format=json", "--bs=" + strconv.Itoa(blockSize)}

func fioArgs(w Work, span time.Duration) []string {
	args := []string{"--ioengine=io_uring", "--direct=1"} // the engine first: others are its own
	if w.Node {
		args = []string{"--ioengine=io_uring_cmd", "--cmd_type=nvme"}
	}
	args = append(args, "--filename="+w.Path, "--rw="+w.Mode, "--iodepth="+strconv.Itoa(w.Depth), "--size="+strconv.FormatUint(w.Size, 10))
	args = append(args, fioFixed...)
	if w.Batch > 0 {
		args = append(args, "--iodepth_batch="+strconv.Itoa(w.Batch))
	}
	if w.Rate {
		args = append(args, "--gtod_reduce=1")
	}
	if span == 0 {
		return append(args, "--number_ios=1")
	}
	return append(args, "--time_based", fmt.Sprintf("--runtime=%dms", span.Milliseconds()))
}

// fioRead parses the JSON of fio, which may have warnings in front of it.
func fioRead(out []byte) (run, error) {
	type half struct {
		Operations float64 `json:"total_ios"`
		Rate       float64 `json:"iops"`
	}
	var all struct {
		Jobs []struct {
			Error       int
			Read, Write half
		}
	}
	if err := json.Unmarshal(out[max(0, bytes.IndexByte(out, '{')):], &all); err != nil {
		return run{}, err
	}
	if len(all.Jobs) != 1 || all.Jobs[0].Error != 0 {
		return run{}, errors.New("fio reports an error")
	}
	j := all.Jobs[0]
	return run{operations: j.Read.Operations + j.Write.Operations, rate: j.Read.Rate + j.Write.Rate}, nil
}

// FioVersion is the version that fio prints.
func FioVersion(ctx context.Context, path string) (string, error) {
	out, _, err := bench.Run(ctx, -1, path, "--version")
	return strings.TrimSpace(string(out)), err
}

func oursArgs(w Work, span time.Duration) []string {
	args := []string{"-rw", w.Mode, "-bs", strconv.Itoa(blockSize), "-iodepth", strconv.Itoa(w.Depth), "-json", "-force"}
	if w.Batch > 0 {
		args = append(args, "-iodepth_batch", strconv.Itoa(w.Batch))
	}
	if w.Rate {
		args = append(args, "-latency=false")
	}
	size := w.Size
	if span == 0 {
		size = blockSize // once over one block
	}
	return append(args, "-size", strconv.FormatUint(size, 10), "-runtime", span.String(), w.Path)
}

func oursRead(out []byte) (run, error) {
	var r struct {
		Reads, Writes, IOPS float64
	}
	err := json.Unmarshal(out, &r)
	return run{operations: r.Reads + r.Writes, rate: r.IOPS}, err
}
