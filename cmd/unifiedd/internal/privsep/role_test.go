package privsep

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/umem"
)

// The tests are about processes, so the test binary plays the parent process and the
// daemon as well: with roleEnv set it calls Start first thing, as the program does,
// and if it is the daemon then does what the role says.
const (
	roleEnv    = "STARTER_TEST_ROLE"
	optionsEnv = "STARTER_TEST_OPTIONS"
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	if role == "" {
		os.Exit(m.Run())
	}
	var o Options
	if err := json.Unmarshal([]byte(os.Getenv(optionsEnv)), &o); err != nil {
		panic(err)
	}
	out, err := Start(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(max(out.Status, 99))
	}
	if !out.Daemon {
		os.Exit(out.Status)
	}
	os.Exit(roles[role](o, out))
}

// roles are what daemons do; the result is the exit status.
var roles = map[string]func(Options, Outcome) int{
	"report": report,
	"wait":   wait,
	"fail":   func(Options, Outcome) int { return 42 },
	"die":    func(Options, Outcome) int { unix.Kill(os.Getpid(), unix.SIGKILL); select {} },
	"hold":   hold,
	"listen": listen,
	"steer":  steer,
}

// facts are what a daemon finds out about itself.
type facts struct {
	Threads  []caps.Status
	Groups   []int
	Missing  caps.Set
	Name     string // of the process
	Marker   string // left in the environment
	Watchdog string // likewise
	Socket   string // why an AF_XDP socket does not open
	Program  string // why an XDP program does not load
	Etc      string // why a file in /etc cannot be made
	Dirs     []string
	Session  bool // of its own
	Gained   caps.Set
}

// report prints facts as JSON.
func report(o Options, out Outcome) int {
	for range 4 { // more threads, made after the start
		go func() { runtime.LockOSThread(); select {} }()
	}
	time.Sleep(20 * time.Millisecond)
	f := facts{Missing: out.Missing, Marker: os.Getenv(marker), Watchdog: os.Getenv("WATCHDOG_PID")}
	f.Threads, _ = caps.Threads()
	f.Groups, _ = os.Getgroups()
	comm, _ := os.ReadFile("/proc/self/comm")
	f.Name = strings.TrimSpace(string(comm))
	f.Socket, f.Program, f.Etc = text(trySocket()), text(tryProgram()), text(tryEtc())
	for _, dir := range o.Dirs {
		f.Dirs = append(f.Dirs, text(os.WriteFile(dir+"/made", nil, 0o600)))
	}
	sid, _ := unix.Getsid(0)
	f.Session = sid == os.Getpid()
	f.Gained = tryGain()
	if err := json.NewEncoder(os.Stdout).Encode(f); err != nil {
		return 1
	}
	return 0
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func trySocket() error {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// tryProgram loads the program and attaches it to the loopback interface of the
// namespace the test made.
func tryProgram() error {
	p, err := bpf.Load(bpf.Config{Queues: 1})
	if err != nil {
		return err
	}
	defer p.Close()
	return p.Attach(1, bpf.Generic)
}

func tryEtc() error {
	const file = "/etc/unifiedd-privsep-test"
	defer os.Remove(file)
	return os.WriteFile(file, nil, 0o600)
}

// tryGain asks for every capability on a thread, and says what it got.
func tryGain() caps.Set {
	got := make(chan caps.Set)
	go func() {
		runtime.LockOSThread() // and never unlocked
		for n := range 41 {
			self, _ := caps.Thread()
			_ = setCapabilities(self.Permitted | 1<<n)
		}
		self, _ := caps.Thread()
		got <- self.Reach()
	}()
	return <-got
}

// wait prints its number and ends 7 after SIGTERM, 8 after SIGHUP.
func wait(Options, Outcome) int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGTERM, unix.SIGHUP)
	fmt.Println(os.Getpid())
	select {
	case s := <-signals:
		fmt.Println(s)
		return map[os.Signal]int{unix.SIGTERM: 7, unix.SIGHUP: 8}[s]
	case <-time.After(time.Minute): // the test is gone
		return 9
	}
}

// hold opens its region, prints its number and waits.
func hold(o Options, out Outcome) int {
	o.Region.Memory = out.Memory
	if _, err := umem.Open(*o.Region); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return wait(o, out)
}

// listen leaves a socket behind.
func listen(o Options, out Outcome) int {
	for _, path := range o.Sockets {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		l.SetUnlinkOnClose(false)
		defer l.Close()
	}
	return wait(o, out)
}
