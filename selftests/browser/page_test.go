package browser

import (
	"context"
	"fmt"
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

// launch runs a daemon with two flows and returns the address of its page.
func launch(t *testing.T) string {
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
	text := fmt.Sprintf(`
control: {socket: %[1]s/control.sock}
metrics: {listen: "%[2]s"}
region: {size: 64MiB, pages: ordinary, extents: 16}
attach:
  socket: %[1]s/attach.sock
  programs: [{name: handler, user: root}, {name: monitor, user: root}]
  channels: [{name: book, writer: handler, readers: [{program: monitor}]}]
flows:
  - {name: discarded, from: {generate: 200, rate: 2000}, to: {discard: true}}
  - {name: recorded, from: {generate: 600, rate: 1000}, to: {file: %[1]s/recorded, segment: {size: 16MiB, keep: 2}}}
`, dir, address)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "run", "-c", file)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the daemon: %v\n%s", err, said.String())
		}
	})
	for range 600 {
		if answer, err := http.Get("http://" + address + "/readyz"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return "http://" + address + "/"
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("the daemon is not ready:\n%s", said.String())
	return ""
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

// picture writes what the browser shows to build/page.
func picture(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	raw, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "build", "page")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), raw, 0o644); err != nil {
		t.Fatal(err)
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

// TestPage: the page shows the figures of /metrics, in light, dark and on a phone, with the keyboard and to a
// screen reader, and asks no other host for anything.
func TestPage(t *testing.T) {
	if os.Getenv("UNIFIEDD_BROWSER") == "" {
		t.Skip("short: make test-long SUITE=page opens the page in a browser")
	}
	base := launch(t)
	ctx, seen := open(t)
	ask(t, ctx, network.Enable, network.EnableParams{})
	ask(t, ctx, log.Enable, cdp.Empty{})
	do(t, ctx, chromedp.EmulateViewport(1200, 900), chromedp.Navigate(base), chromedp.WaitVisible(`html[data-shown] #picture li`))
	figures(t, ctx, base)
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
	do(t, ctx, chromedp.EmulateViewport(400, 900))
	if wide := eval[int](t, ctx, `document.documentElement.scrollWidth`); wide > 400 {
		t.Errorf("at 400 pixels the page is %d wide", wide)
	}
	picture(t, ctx, "phone")
	audit(t, ctx, "on a phone")
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, fault := range seen.faults {
		t.Error(fault)
	}
	for _, url := range seen.requests {
		if !strings.HasPrefix(url, base) {
			t.Errorf("the page asked for %s", url)
		}
	}
	if len(seen.requests) < 4 {
		t.Errorf("only %d requests were seen", len(seen.requests))
	}
}

// prefer sets whether the user prefers light or dark pages.
func prefer(t *testing.T, ctx context.Context, scheme string) {
	t.Helper()
	ask(t, ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// figures compares the page with /metrics.
func figures(t *testing.T, ctx context.Context, base string) {
	t.Helper()
	if n := eval[int](t, ctx, `document.querySelectorAll("#picture li").length`); n != 2 {
		t.Errorf("the picture has %d flows, want 2", n)
	}
	if text := eval[string](t, ctx, `document.getElementById("connection").textContent`); text != "2 of 2 flows run" {
		t.Errorf("it says %q", text)
	}
	const packets = `newest.flows.find(f => f.name === "discarded").packets`
	before := eval[float64](t, ctx, packets)
	real := metric(t, base, `unifiedd_received_packets_total{flow="discarded",interface=""}`)
	time.Sleep(3 * time.Second)
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
	if bar, wide := eval[float64](t, ctx, `[...document.querySelectorAll("#owners span")].reduce((n, e) => n + e.getBoundingClientRect().width, 0)`),
		eval[float64](t, ctx, `document.getElementById("owners").clientWidth`); bar < wide-3 || bar > wide+3 {
		t.Errorf("the bar's parts are %v of %v pixels", bar, wide)
	}
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
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](`document.documentElement.dataset.shown !== "`+shown+`" && document.querySelectorAll("details[open] dd").length > 5`, chromedp.WithPollingTimeout(time.Minute))); err != nil {
		t.Fatal(err)
	}
	if tag := eval[string](t, ctx, `document.activeElement.tagName`); tag != "SUMMARY" {
		t.Errorf("the focus moved to %s", tag)
	}
	text := eval[string](t, ctx, `document.querySelector("details[open] dl").textContent`)
	for _, want := range []string{"copies per byte", "lost", "latency", "median"} {
		if !strings.Contains(text, want) {
			t.Errorf("the details have no %q: %s", want, text)
		}
	}
	if bars := eval[int](t, ctx, `document.querySelectorAll("details[open] .bars span").length`); bars == 0 {
		t.Error("the details have no histogram")
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
	for role, least := range map[string]int{"heading": 7, "main": 1, "banner": 1, "status": 1, "navigation": 1, "columnheader": 6} {
		if found[role] < least {
			t.Errorf("a screen reader finds %d of %s, want %d: %v", found[role], role, least, found)
		}
	}
	if levels := eval[string](t, ctx, `[...document.querySelectorAll("h1,h2,h3")].map(h => h.tagName[1]).join("")`); levels != "1222222" {
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
