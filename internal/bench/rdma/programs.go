package rdma

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// Program is one of the two: the command lines of its ends.
type Program struct {
	port   int // TCP, on which its server listens
	server func(p Place, w Work) []string
	client func(p Place, w Work) []string
}

// Ours is unified-rdma-test.
func Ours(path string) *Program {
	return &Program{port: 18516,
		server: func(p Place, _ Work) []string { return []string{path, p.Card, p.Device, "-", "server"} },
		client: func(p Place, w Work) []string {
			return append(append([]string{path}, oursArgs(p, w)...), p.Card, p.Device, "-", p.Address)
		}}
}

func oursArgs(p Place, w Work) []string {
	args := []string{"-mtu", strconv.Itoa(p.MTU), "-op", w.Op, "-n", strconv.Itoa(w.Count)}
	if w.Op != "fetch-add" {
		args = append(args, "-size", strconv.Itoa(w.Size))
	}
	if w.Bandwidth {
		return append(args, "-test", "bandwidth", "-depth", strconv.Itoa(depth))
	}
	return append(args, "-test", "latency")
}

// Perftest is the program of perftest that does the work.
func Perftest() *Program {
	return &Program{port: 18515, server: perftest,
		client: func(p Place, w Work) []string { return append(perftest(p, w), p.Address) }}
}

// perftest is the command of both ends, whose options must agree.
func perftest(p Place, w Work) []string {
	args := []string{perftestName(w), "-d", p.Device, "-x", strconv.Itoa(p.GID), "-m", strconv.Itoa(p.MTU), "-n", strconv.Itoa(w.Count)}
	if w.Op != "fetch-add" {
		args = append(args, "-s", strconv.Itoa(w.Size))
	}
	if w.Bandwidth {
		args = append(args, "-t", strconv.Itoa(depth))
	}
	return args
}

func perftestName(w Work) string {
	op := w.Op
	if op == "fetch-add" {
		op = "atomic"
	}
	if w.Bandwidth {
		return "ib_" + op + "_bw"
	}
	return "ib_" + op + "_lat"
}

// The processors of the ends, for both programs.
const (
	serverCPU = "0"
	clientCPU = "1"
)

// measure starts a server and a client and returns the client's result. It leaves no process or
// file behind.
func (g *Program) measure(ctx context.Context, p Place, w Work) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		_, err := run(ctx, serverCPU, g.server(p, w))
		served <- err
	}()
	value, err := g.ask(ctx, p, w, served)
	if err != nil {
		cancel() // a server without a client would wait for one
	}
	if end := <-served; err == nil && end != nil {
		err = fmt.Errorf("the server: %w", end)
	}
	return value, err
}

// ask runs the client.
func (g *Program) ask(ctx context.Context, p Place, w Work, served chan error) (float64, error) {
	listens := func() bool { return bench.Listens("tcp", g.port) }
	if err := bench.AwaitServer(ctx, listens, served); err != nil {
		return 0, err
	}
	out, err := run(ctx, clientCPU, g.client(p, w))
	if err != nil {
		return 0, err
	}
	return read(string(out), w)
}

func run(ctx context.Context, cpu string, command []string) ([]byte, error) {
	out, _, err := bench.Run(ctx, -1, "taskset", append([]string{"-c", cpu}, command...)...)
	return out, err
}

// read finds the row in a table of perftest's form, and in it the median of latencies in
// microseconds, or the average bandwidth in MB/s.
func read(out string, w Work) (float64, error) {
	column, least := 4, 9
	if w.Bandwidth {
		column, least = 3, 5
	}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < least || f[0] != strconv.Itoa(w.Size) {
			continue
		}
		if f[1] != strconv.Itoa(w.Count) {
			return 0, fmt.Errorf("it did %s messages and not %d", f[1], w.Count)
		}
		v, err := strconv.ParseFloat(f[column], 64)
		if err == nil && v <= 0 {
			err = errors.New("it measured nothing")
		}
		return v, err
	}
	return 0, fmt.Errorf("there is no row of %d bytes in %q", w.Size, out)
}
