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

// The tests start processes. The test binary is both the parent process and the daemon: with roleEnv set it
// calls Start first, as the program does. If it is then the daemon, it does what the role says.
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

// roles are the actions of daemons. They return the exit status.
var roles = map[string]func(Options, Outcome) int{
	"report": report,
	"wait":   wait,
	"fail":   func(Options, Outcome) int { return 42 },
	"die":    func(Options, Outcome) int { unix.Kill(os.Getpid(), unix.SIGKILL); select {} },
	"hold":   hold,
	"listen": listen,
	"steer":  steer,
}

// facts has what a daemon finds out about its own process.
type facts struct {
	Threads  []caps.Status
	Groups   []int
	Missing  caps.Set
	Name     string // the process's name
	Marker   string // left in the environment
	Watchdog string // likewise
	Socket   string // the error of opening an AF_XDP socket
	Program  string // the error of loading an XDP program
	Etc      string // the error of making a file in /etc
	Dirs     []string
	Session  bool // the process has its own session
	Gained   caps.Set
}

// report prints facts as JSON.
func report(o Options, out Outcome) int {
	for range 4 { // more threads, created after Start
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

// tryProgram loads the program and attaches it to the loopback interface of the test's namespace.
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

// tryGain asks for every capability on a thread and returns those that it got.
func tryGain() caps.Set {
	got := make(chan caps.Set)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for n := range 41 {
			self, _ := caps.Thread()
			_ = setCapabilities(self.Permitted | 1<<n)
		}
		self, _ := caps.Thread()
		got <- self.Reach()
	}()
	return <-got
}

// wait prints its process ID and returns 7 after SIGTERM, 8 after SIGHUP.
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

// hold opens its region, prints its process ID and waits.
func hold(o Options, out Outcome) int {
	o.Region.Memory = out.Memory
	if _, err := umem.Open(*o.Region); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return wait(o, out)
}

// listen makes a socket and leaves it behind.
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
