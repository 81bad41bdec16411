package alarms

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// shiftClock moves the system's clock as one process sees it, and leaves the machine's alone: other programs, and
// other tests, need that. It replaces the function of the vDSO through which the process reads its clocks, in the
// private copy of that process.
func shiftClock(t *testing.T, pid int, by time.Duration) {
	t.Helper()
	code := shifted(int32(by / time.Second))
	testenv.Must(t, unix.Kill(pid, unix.SIGSTOP))
	defer func() { _ = unix.Kill(pid, unix.SIGCONT) }() // it may have ended
	for range 50 {
		begin, end, err := vdso(pid)
		testenv.Must(t, err)
		if inside(pid, begin, end) {
			_ = unix.Kill(pid, unix.SIGCONT) // a thread reads the clock right now
			time.Sleep(time.Millisecond)
			_ = unix.Kill(pid, unix.SIGSTOP)
			continue
		}
		testenv.Must(t, replace(pid, begin, end, code))
		return
	}
	t.Fatalf("threads of process %d are always within the function that reads clocks", pid)
}

// shifted is, for amd64, clock_gettime(2) with seconds added to CLOCK_REALTIME.
func shifted(seconds int32) []byte {
	code := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, 228: clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi
		0x75, 0x07, // jnz over the addition: another clock
		0x48, 0x81, 0x06, // add qword [rsi], seconds
	}
	code = binary.LittleEndian.AppendUint32(code, uint32(seconds))
	return append(code, 0xc3) // ret
}

// vdso returns where a process has its vDSO.
func vdso(pid int) (begin, end uint64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			_, err = fmt.Sscanf(line, "%x-%x", &begin, &end)
			return begin, end, err
		}
	}
	return 0, 0, fmt.Errorf("process %d has no vDSO", pid)
}

// inside reports whether a thread of a stopped process executes there, or whether one does not stand still yet.
func inside(pid int, begin, end uint64) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	for _, name := range files {
		text, err := os.ReadFile(name)
		fields := strings.Fields(string(text))
		if err != nil || len(fields) < 2 {
			return true // running
		}
		pc, err := strconv.ParseUint(strings.TrimPrefix(fields[len(fields)-1], "0x"), 16, 64)
		if err != nil || pc >= begin && pc < end {
			return true
		}
	}
	return false
}

// replace overwrites the function of a process that reads clocks.
func replace(pid int, begin, end uint64, code []byte) error {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	image := make([]byte, end-begin)
	if _, err := memory.ReadAt(image, int64(begin)); err != nil {
		return err
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" && s.Size >= uint64(len(code)) {
			_, err := memory.WriteAt(code, int64(begin+s.Value))
			return err
		}
	}
	return fmt.Errorf("the vDSO of process %d has no function for clocks that is long enough", pid)
}
