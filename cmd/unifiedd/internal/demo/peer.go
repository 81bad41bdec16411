package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/internal/latency"
)

// heard is the result that a command of unified-flow-test prints.
type heard struct {
	Command  string
	Messages uint64
	Bytes    uint64
	Seconds  float64
	Latency  *latency.Summary `json:"latency_ns"`

	// Of append to a group.
	Gap         time.Duration `json:"longest_gap_ns"` // without an acknowledgement
	Position    uint64        // of the last message
	Connections uint64
}

// flowTest is the program at the remote end of the flows.
const flowTest = "unified-flow-test"

// findFlowTest finds unified-flow-test in the directory of this program or in PATH, unless the user
// named it.
func (o *Options) findFlowTest() error {
	if o.FlowTest != "" {
		return nil
	}
	if self, err := os.Executable(); err == nil {
		if o.FlowTest = filepath.Join(filepath.Dir(self), flowTest); exists(o.FlowTest) {
			return nil
		}
	}
	var err error
	if o.FlowTest, err = exec.LookPath(flowTest); err != nil {
		return fmt.Errorf("the demo runs %s, which is neither in the directory of unifiedd nor in PATH: make build, or install the package", flowTest)
	}
	return nil
}

// runFlowTest runs the program in the namespace with that path. A + separates its commands, and
// each prints one result.
func runFlowTest(ctx context.Context, program, namespace string, line ...string) (all []heard, err error) {
	var words []string
	for i, w := range line {
		words = append(words, w)
		if i == 0 || line[i-1] == "+" {
			words = append(words, "-json", "-timeout", programLimit.String())
		}
	}
	var out string
	err = inNamespace(namespace, func() (err error) { out, err = runProgram(ctx, program, words...); return err })
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var h heard
		if err := d.Decode(&h); err != nil {
			return nil, fmt.Errorf("%s printed %q: %w", flowTest, out, err)
		}
		all = append(all, h)
	}
	if want := 1 + len(slices.DeleteFunc(slices.Clone(line), func(w string) bool { return w != "+" })); len(all) != want {
		return nil, errors.New(flowTest + " did not say what each of its commands did: " + out)
	}
	return all, nil
}
