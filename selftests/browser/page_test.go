package browser

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// root is the top of the source tree.
const root = "../.."

// daemon is a daemon of which some flows are in trouble.
type daemon struct {
	base string // address of its page
	cmd  *exec.Cmd
}

// flows are two that are well, one whose disk is full, one without its interface and one that loses all it has.
const flows = `
control: {socket: %[1]s/control.sock}
metrics: {listen: "%[2]s"}
region: {size: 96MiB, pages: ordinary, extents: 24}
attach:
  socket: %[1]s/attach.sock
  programs: [{name: handler, user: root, in: 4MiB}, {name: monitor, user: root}]
  channels: [{name: book, writer: handler, readers: [{program: monitor}]}]
flows:
  - {name: discarded, from: {generate: 200, rate: 2000}, to: {discard: true}}
  - {name: recorded, from: {generate: 600, rate: 1000}, to: {file: %[1]s/recorded, segment: {size: 16MiB, keep: 2}}}
  - {name: disk-full, from: {generate: 1000, rate: 20000}, to: {file: %[1]s/full/recorded, segment: {size: 8MiB}}}
  - {name: card-missing, from: {interface: no-such-card, ring: 512}, to: {discard: true}}
  - {name: to-a-program-with-a-long-name, from: {generate: 300, rate: 6500}, to: {attach: handler}}
`

// launch runs a daemon. Its small disk is mounted in a namespace of its own, and goes with it.
func launch(t *testing.T) *daemon {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "unifiedd")
	build := exec.Command("go", "build", "-o", program, "./cmd/unifiedd")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	file := filepath.Join(dir, "unifiedd.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, flows, dir, address), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--mount", "sh", "-ec", `
		truncate -s 32M "$1/disk"
		mkfs.ext4 -q -F "$1/disk"
		mkdir "$1/full"
		mount -o loop "$1/disk" "$1/full"
		exec "$1/unifiedd" run -c "$1/unifiedd.yaml"`, "sh", dir)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = signal(cmd.Process.Pid, syscall.SIGCONT)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil && !strings.Contains(said.String(), "disk-full: ") { // it cannot write what it has
			t.Errorf("the daemon: %v\n%s", err, said.String())
		}
	})
	for range 600 {
		if answer, err := http.Get("http://" + address + "/healthz"); err == nil {
			answer.Body.Close()
			return &daemon{"http://" + address + "/", cmd}
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("the daemon does not answer:\n%s", said.String())
	return nil
}

// seen is what the browser reported while the page was open.
type seen struct {
	mu       sync.Mutex
	faults   []string
	requests []string
}

func (s *seen) add(list *[]string, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, fmt.Sprintf(format, args...))
}

// open starts a browser and returns its context.
func open(t *testing.T) (context.Context, *seen) {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath(tool(t, "chromium")), chromedp.WSURLReadTimeout(2*time.Minute), chromedp.Flag("lang", "en"))
	allocator, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, stop := chromedp.NewContext(allocator)
	t.Cleanup(stop)
	s := new(seen)
	do(t, ctx) // starts the browser, which lives until the test ends
	if err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			s.add(&s.faults, "exception: %s", e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			s.add(&s.faults, "console: %s", e.Type)
		case *log.EventEntryAdded:
			s.add(&s.faults, "log: %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
		case *network.EventRequestWillBeSent:
			s.add(&s.requests, "%s", e.Request.URL)
		}
	}); err != nil {
		t.Fatal(err)
	}
	return ctx, s
}

func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("look for %s: %v (make test-long SUITE=page installs it)", name, err)
	}
	return path
}

// do runs actions in the browser.
func do(t *testing.T, ctx context.Context, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// ask runs a command of the browser's protocol and returns its result.
func ask[P, R any](t *testing.T, ctx context.Context, command cdp.Command[P, R], params P) R {
	t.Helper()
	r, err := chromedp.Call(ctx, command, params)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// eval returns the value of an expression in the page.
func eval[T any](t *testing.T, ctx context.Context, expr string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expr))
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return v
}

// picture writes what the browser shows to build/page, and compares its size with the picture in the documents: after a
// change of the page they must be taken over.
func picture(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	raw, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	made, kept := filepath.Join(root, "build", "page", name+".png"), filepath.Join(root, "docs", "pictures", "page-"+name+".png")
	if err := os.MkdirAll(filepath.Dir(made), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(made, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	now, old := size(t, made), size(t, kept)
	if now.Width != old.Width || now.Height < old.Height*9/10 || now.Height > old.Height*11/10 {
		t.Errorf("the page is %d by %d, and %s is %d by %d: look at %s, and copy it there", now.Width, now.Height, kept, old.Width, old.Height, made)
	}
}

func size(t *testing.T, path string) image.Config {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Error(err)
		return image.Config{}
	}
	defer f.Close()
	c, err := png.DecodeConfig(f)
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return c
}

// await waits until an expression in the page is true.
func await(t *testing.T, ctx context.Context, expr string) {
	t.Helper()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](expr, chromedp.WithPollingTimeout(100*time.Second))); err != nil {
		t.Fatalf("%s: %v; the page says:\n%s", expr, err, eval[string](t, ctx, `document.body.innerText`))
	}
}

// metric returns the value of a metric, by its name and labels.
func metric(t *testing.T, base, series string) float64 {
	t.Helper()
	answer, err := http.Get(base + "metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("/metrics has no %s", series)
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestPage: the page shows the figures of /metrics, and what is wrong before what is not, in light, dark and on a phone,
// with the keyboard and to a screen reader. It asks no other host for anything, and says when the daemon does not answer.
func TestPage(t *testing.T) {
	if os.Getenv("UNIFIEDD_BROWSER") == "" {
		t.Skip("short: make test-long SUITE=page opens the page in a browser")
	}
	d := launch(t)
	ctx, seen := open(t)
	ask(t, ctx, network.Enable, network.EnableParams{})
	ask(t, ctx, log.Enable, cdp.Empty{})
	do(t, ctx, chromedp.EmulateViewport(1200, 900), chromedp.Navigate(d.base), chromedp.WaitVisible(`html[data-shown] #flows li`))
	await(t, ctx, `newest.flows.every(f => (f.rates || []).length >= 6) && newest.flows.find(f => f.name === "disk-full").cause === "disk_full"`)
	figures(t, ctx, d.base)
	trouble(t, ctx)
	keyboard(t, ctx)
	reader(t, ctx)
	for _, scheme := range []string{"light", "dark"} {
		prefer(t, ctx, scheme)
		picture(t, ctx, scheme)
		contrast(t, ctx, scheme)
		audit(t, ctx, scheme)
	}
	dark := eval[string](t, ctx, `getComputedStyle(document.body).backgroundColor`)
	prefer(t, ctx, "light")
	if light := eval[string](t, ctx, `getComputedStyle(document.body).backgroundColor`); light == dark {
		t.Errorf("light and dark have the same background %s", dark)
	}
	do(t, ctx, chromedp.KeyEvent(kb.Enter)) // closes the details
	phone(t, ctx)
	do(t, ctx, chromedp.EmulateViewport(1200, 900), chromedp.KeyEvent(kb.Enter))
	stale(t, ctx, d.cmd.Process.Pid) // packets are lost meanwhile
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, fault := range seen.faults {
		t.Error(fault)
	}
	for _, url := range seen.requests {
		if !strings.HasPrefix(url, d.base) {
			t.Errorf("the page asked for %s", url)
		}
	}
	if len(seen.requests) < 4 {
		t.Errorf("only %d requests were seen", len(seen.requests))
	}
}

// trouble checks that flows in trouble come first, look like it, and say why and what to do.
func trouble(t *testing.T, ctx context.Context) {
	t.Helper()
	if title := eval[string](t, ctx, `document.title`); !strings.HasPrefix(title, "(3) ") || !strings.HasSuffix(title, ": unifiedd") || len(title) <= len("(3) : unifiedd") {
		t.Errorf("the title is %q", title)
	}
	if host, err := os.Hostname(); err != nil || eval[string](t, ctx, `document.querySelector("h1").textContent`) != host {
		t.Errorf("the heading is not the host's name %s, %v", host, err)
	}
	if text := eval[string](t, ctx, `document.getElementById("banner").textContent`); text != "3 flows need attention: disk-full, card-missing, to-a-program-with-a-long-name" {
		t.Errorf("the banner says %q", text)
	}
	if order := eval[string](t, ctx, `[...document.querySelectorAll("#flows > li")].map(e => e.className).join()`); order != "flow bad,flow bad,flow bad,flow good,flow good" {
		t.Errorf("the flows are in the order %s", order)
	}
	colors := `[...document.querySelectorAll(".flow.%s")].map(e => getComputedStyle(e)).map(s => s.backgroundColor + s.borderTopColor + s.borderLeftColor)[0]`
	if bad, good := eval[string](t, ctx, fmt.Sprintf(colors, "bad")), eval[string](t, ctx, fmt.Sprintf(colors, "good")); bad == good {
		t.Errorf("flows in trouble have the colors %s of those without", bad)
	}
	for i, wants := range [][]string{
		{"waits since ", "UTC: its disk is full: ", "MiB of 25.2 MiB are free, and it needs more: make room on the disk", "did not take generated packets", "/s"},
		{"has failed since ", "interface no-such-card is not there: bring it back"},
		{"no program had the flow open: start the program", "lost "},
	} {
		text := eval[string](t, ctx, fmt.Sprintf(`document.querySelectorAll("#flows > li")[%d].innerText`, i))
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("flow %d does not say %q: %s", i, want, text)
			}
		}
	}
	if wide := eval[float64](t, ctx, `(e => e.children[0].getBoundingClientRect().width / e.clientWidth)(document.querySelector(".room:not([hidden])"))`); wide < 0.6 || wide > 1 {
		t.Errorf("the bar of the full disk shows %v of it in use", wide)
	}
	for _, broken := range eval[[]string](t, ctx, `[...document.querySelectorAll("#messages td:nth-child(4), section thead th")].filter(e => { const r = document.createRange(); r.selectNodeContents(e); return r.getClientRects().length > 1; }).map(e => e.textContent)`) {
		t.Errorf("%q is on several lines", broken)
	}
	for _, c := range []struct{ path, flow, want string }{{"rate", "discarded", "some"}, {"loss", "discarded", "none"}, {"loss", "to-a-program-with-a-long-name", "some"}} {
		drawn := eval[string](t, ctx, fmt.Sprintf(`document.querySelector('li[data-key=%q] .%s').getAttribute("d")`, c.flow, c.path))
		if (c.want == "some") != (strings.Count(drawn, "M") >= 6) {
			t.Errorf("the %s of %s is drawn as %q", c.path, c.flow, drawn)
		}
	}
}

// signal sends a signal to a daemon and to its process without rights, which serves the page.
func signal(daemon int, s syscall.Signal) error {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", daemon)) // each has those of one thread
	for _, list := range lists {
		children, wrong := os.ReadFile(list)
		err = errors.Join(err, wrong)
		for _, child := range strings.Fields(string(children)) {
			pid, wrong := strconv.Atoi(child)
			err = errors.Join(err, wrong, syscall.Kill(pid, s))
		}
	}
	return errors.Join(err, syscall.Kill(daemon, s))
}

// stale stops the daemon, and lets it go on: everything is grey meanwhile, and the page says since when.
func stale(t *testing.T, ctx context.Context, daemon int) {
	t.Helper()
	const state = `getComputedStyle(document.querySelector(".flow.good .state")).color`
	green := eval[string](t, ctx, state)
	if err := signal(daemon, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await(t, ctx, `document.body.className === "stale"`)
	if text := eval[string](t, ctx, `document.getElementById("banner").textContent`); !regexp.MustCompile(`^The daemon does not answer: last update \d\d:\d\d:\d\d UTC$`).MatchString(text) {
		t.Errorf("it says %q", text)
	}
	await(t, ctx, `/^(1\d|[5-9]) s ago; trying again in \d s$/.test(document.getElementById("age").textContent)`)
	if now := eval[string](t, ctx, state); now == green {
		t.Errorf("a flow that was running has still the color %s", now)
	}
	picture(t, ctx, "stale")
	contrast(t, ctx, "stale")
	audit(t, ctx, "while the daemon does not answer")
	if err := signal(daemon, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await(t, ctx, `document.body.className === "" && document.getElementById("age").hidden`)
	if now := eval[string](t, ctx, state); now != green {
		t.Errorf("a flow that runs again has the color %s, not %s", now, green)
	}
}

// phone checks that nothing is wider than a phone, and that a flow without trouble is one line.
func phone(t *testing.T, ctx context.Context) {
	t.Helper()
	for _, width := range []int{320, 400, 800} {
		do(t, ctx, chromedp.EmulateViewport(int64(width), 900))
		if wide := eval[int](t, ctx, `document.documentElement.scrollWidth`); wide > width {
			t.Errorf("at %d pixels the page is %d wide", width, wide)
		}
		for _, one := range eval[[]string](t, ctx, `[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1 || e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline" && e.clientWidth > 0).map(e => e.tagName + "." + e.className + " " + e.textContent.slice(0, 40))`) {
			t.Errorf("at %d pixels there is no room for %s", width, one)
		}
	}
	do(t, ctx, chromedp.EmulateViewport(400, 900))
	if high := eval[float64](t, ctx, `Math.max(...[...document.querySelectorAll(".flow.good")].map(e => e.getBoundingClientRect().height))`); high > 48 {
		t.Errorf("a flow without trouble is %v pixels high", high)
	}
	picture(t, ctx, "phone")
	audit(t, ctx, "on a phone")
}

// prefer sets whether the user prefers light or dark pages.
func prefer(t *testing.T, ctx context.Context, scheme string) {
	t.Helper()
	ask(t, ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// figures compares the page with /metrics.
func figures(t *testing.T, ctx context.Context, base string) {
	t.Helper()
	if text := eval[string](t, ctx, `document.getElementById("about").textContent`); !strings.HasSuffix(text, ", 3 of 5 flows run") {
		t.Errorf("it says %q", text)
	}
	const packets = `newest.flows.find(f => f.name === "discarded").packets`
	before := eval[float64](t, ctx, packets)
	real := metric(t, base, `unifiedd_received_packets_total{flow="discarded",interface=""}`)
	await(t, ctx, fmt.Sprintf(packets+` >= %f`, real))
	after := eval[float64](t, ctx, packets)
	if before <= 0 || before > real || after < real {
		t.Errorf("the page shows %v and then %v packets, and /metrics %v between", before, after, real)
	}
	sum := 0.0
	for _, owner := range eval[[]struct {
		Name  string
		Count float64
	}](t, ctx, `newest.region.owners`) {
		sum += owner.Count
	}
	if all := eval[float64](t, ctx, `newest.region.frames`); all <= 0 || sum != all {
		t.Errorf("the owners have %v of %v frames", sum, all)
	}
	for _, want := range []string{"program handler", "not attached", "channel book", "0 messages of handler (absent)"} {
		if text := eval[string](t, ctx, `document.getElementById("shared").innerText`); !strings.Contains(text, want) {
			t.Errorf("the programs and channels have no %q: %s", want, text)
		}
	}
	// The bar shows the same sum, as widths.
	eval[bool](t, ctx, `document.getElementById("region").open = true`)
	if bar, wide := eval[float64](t, ctx, `[...document.querySelectorAll("#owners span")].reduce((n, e) => n + e.getBoundingClientRect().width, 0)`),
		eval[float64](t, ctx, `document.getElementById("owners").clientWidth`); bar < wide-3 || bar > wide+3 {
		t.Errorf("the bar's parts are %v of %v pixels", bar, wide)
	}
	eval[bool](t, ctx, `document.getElementById("region").open = false, true`)
	if text := eval[string](t, ctx, `document.getElementById("findings").textContent`); !strings.Contains(text, "ordinary pages") {
		t.Errorf("the findings are %q", text)
	}
}

// keyboard opens the details of a flow with the keyboard, and finds them open and still in focus after the next
// event.
func keyboard(t *testing.T, ctx context.Context) {
	t.Helper()
	for range 10 {
		do(t, ctx, chromedp.KeyEvent(kb.Tab))
		if eval[string](t, ctx, `document.activeElement.tagName`) == "SUMMARY" {
			break
		}
	}
	do(t, ctx, chromedp.KeyEvent(kb.Enter))
	shown := eval[string](t, ctx, `document.documentElement.dataset.shown`)
	await(t, ctx, `document.documentElement.dataset.shown !== "`+shown+`" && document.querySelectorAll("details[open] dd").length > 5`)
	if tag := eval[string](t, ctx, `document.activeElement.tagName`); tag != "SUMMARY" {
		t.Errorf("the focus moved to %s", tag)
	}
	text := eval[string](t, ctx, `document.querySelector("details[open] dl").textContent`)
	for _, want := range []string{"copies per byte", "lost", "latency", "median"} {
		if !strings.Contains(text, want) {
			t.Errorf("the details have no %q: %s", want, text)
		}
	}
	rows := eval[[]string](t, ctx, `[...document.querySelectorAll("details[open] .bins tbody tr")].map(e => e.innerText.replace(/\s+/g, " "))`)
	if len(rows) == 0 {
		t.Error("the details have no histogram")
	}
	for _, row := range rows {
		if !regexp.MustCompile(`^below [\d.,]+ (ns|µs|ms|s) [\d,]+$`).MatchString(row) {
			t.Errorf("a row of the histogram is %q", row)
		}
	}
	if widest := eval[float64](t, ctx, `Math.max(...[...document.querySelectorAll("details[open] .bins i")].map(e => e.getBoundingClientRect().width / e.parentElement.clientWidth))`); widest < 0.9 || widest > 1 {
		t.Errorf("the longest bar has %v of the room", widest)
	}
}

// reader checks the tree of a screen reader: everything that can be reached has a name, and headings are in order.
func reader(t *testing.T, ctx context.Context) {
	t.Helper()
	nodes := ask(t, ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes
	named := map[string]bool{"heading": true, "link": true, "image": true, "img": true, "region": true, "navigation": true, "DisclosureTriangle": true, "button": true, "columnheader": true}
	found := map[string]int{}
	for _, n := range nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		role, name := strings.Trim(string(n.Role.Value), `"`), ""
		if n.Name != nil {
			name = strings.Trim(string(n.Name.Value), `" `)
		}
		found[role]++
		if named[role] && name == "" {
			t.Errorf("a %s has no name", role)
		}
	}
	for role, least := range map[string]int{"heading": 5, "main": 1, "banner": 1, "status": 1, "navigation": 1, "columnheader": 5, "rowheader": 1} {
		if found[role] < least {
			t.Errorf("a screen reader finds %d of %s, want %d: %v", found[role], role, least, found)
		}
	}
	if levels := eval[string](t, ctx, `[...document.querySelectorAll("h1,h2,h3")].map(h => h.tagName[1]).join("")`); levels != "12222" {
		t.Errorf("the levels of headings are %s", levels)
	}
	if lang := eval[string](t, ctx, `document.documentElement.lang`); lang != "en" {
		t.Errorf("the language is %q", lang)
	}
}

// audit runs axe-core in the page, with all its rules. Where it finds nothing wrong and cannot be sure, it says so in the
// log. It must be able to find something: an image without a name.
func audit(t *testing.T, ctx context.Context, how string) {
	t.Helper()
	script, err := os.ReadFile(filepath.Join(root, "build", "axe", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatalf("%v (make test-long SUITE=page installs it)", err)
	}
	type finding struct {
		ID     string   `json:"id"`
		Impact string   `json:"impact"`
		Help   string   `json:"help"`
		Nodes  []string `json:"nodes"`
	}
	type result struct {
		Passes    int       `json:"passes"`
		Wrong     []finding `json:"wrong"`
		Uncertain []finding `json:"uncertain"`
	}
	run := func() result {
		t.Helper()
		eval[bool](t, ctx, string(script)+";true")
		r, err := chromedp.Run(ctx, chromedp.Evaluate[result](`axe.run(document, {resultTypes: ["violations", "incomplete"]}).then(r => {
			const brief = all => all.map(f => ({id: f.id, impact: f.impact, help: f.help, nodes: f.nodes.map(n => n.target.join(" ") + " " + n.failureSummary)}));
			return {passes: r.passes.length, wrong: brief(r.violations), uncertain: brief(r.incomplete)};
		})`, chromedp.EvalAwaitPromise))
		if err != nil {
			t.Fatalf("axe %s: %v", how, err)
		}
		return r
	}
	r := run()
	for _, f := range r.Wrong {
		t.Errorf("axe %s: %s (%s): %s:\n%s", how, f.ID, f.Impact, f.Help, strings.Join(f.Nodes, "\n"))
	}
	for _, f := range r.Uncertain {
		t.Logf("axe %s is not sure: %s: %s:\n%s", how, f.ID, f.Help, strings.Join(f.Nodes, "\n"))
	}
	if t.Logf("axe %s: %d rules passed", how, r.Passes); r.Passes < 20 {
		t.Errorf("axe %s: only %d rules had something to judge", how, r.Passes)
	}
	eval[bool](t, ctx, `document.querySelector("main").append(Object.assign(document.createElement("img"), {id: "bad"})), true`)
	if r := run(); len(r.Wrong) == 0 {
		t.Errorf("axe %s finds nothing wrong with an image without a name", how)
	}
	eval[bool](t, ctx, `document.getElementById("bad").remove(), true`)
}

// contrast checks that each text differs enough from what is behind it (WCAG 2, level AA: 4.5 to 1).
func contrast(t *testing.T, ctx context.Context, scheme string) {
	t.Helper()
	bad := eval[[]string](t, ctx, `(() => {
		const parse = c => c.match(/[\d.]+/g).map(Number);
		const luminance = c => { const [r, g, b] = parse(c).map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
		const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor, p = parse(c); if (p.length < 4 || p[3] > 0) return c; } return "rgb(255, 255, 255)"; };
		const bad = [];
		for (const e of document.querySelectorAll("body *")) {
			if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || e.tagName === "NOSCRIPT") continue;
			const a = luminance(getComputedStyle(e).color), b = luminance(behind(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
			if (ratio < 4.5) bad.push(e.tagName + "." + e.className + " " + ratio.toFixed(2) + ": " + e.textContent.slice(0, 40));
		}
		return bad;
	})()`)
	for _, one := range bad {
		t.Errorf("%s: too little contrast: %s", scheme, one)
	}
}
