package commands

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"image/png"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"
	"golang.org/x/sys/unix"
	"nhooyr.io/websocket"

	"m40-llm/handlers"
	"m40-llm/handlers/live"
	"m40-llm/infer/fixtures"
)

// machine is a network namespace: it has a loopback and addresses of its own, as another machine
// in the house does.
type machine struct {
	t    *testing.T
	fd   int
	addr string // in the network that the machines have in common; empty: it is in none
}

// asMachines runs the rest of a test where it may create network namespaces. Who is not root runs
// it once more, as the root of a user namespace. It returns false when that has been done.
func asMachines(t *testing.T) bool {
	t.Helper()
	for _, tool := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			fixtures.Skip(t, fmt.Sprintf("two machines need the command %s: %v", tool, err))
		}
	}
	if os.Geteuid() == 0 {
		return true
	}
	again := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	again.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, asProgram+"=") })
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	said, err := again.CombinedOutput()
	if _, ran := err.(*exec.ExitError); err != nil && !ran {
		fixtures.Skip(t, fmt.Sprintf("network namespaces are forbidden here: %v", err))
	}
	if t.Logf("as root of a user namespace:\n%s", said); err != nil {
		t.Error(err)
	}
	return false
}

// newMachine creates a machine. Its namespace lasts until the test ends.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t}
	var err error
	var created sync.WaitGroup
	created.Go(func() {
		runtime.LockOSThread() // the thread ends with the goroutine: no other gets its namespace
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			m.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
	})
	created.Wait()
	if err != nil {
		fixtures.Skip(t, fmt.Sprintf("network namespaces are forbidden here: %v", err))
	}
	t.Cleanup(func() { unix.Close(m.fd) })
	m.ip("link", "set", "lo", "up")
	return m
}

// namespace is a path by which other processes of the test find the namespace.
func (m *machine) namespace() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), m.fd) }

// inside makes command run on the machine.
func (m *machine) inside(command *exec.Cmd) {
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		m.t.Fatal(err)
	}
	command.Args = append([]string{"nsenter", "--net=" + m.namespace(), command.Path}, command.Args[1:]...)
	command.Path = nsenter
}

func (m *machine) ip(args ...string) string {
	m.t.Helper()
	command := exec.Command("ip", args...)
	m.inside(command)
	said, err := command.CombinedOutput()
	if err != nil {
		m.t.Fatalf("ip %v: %v: %s", args, err, said)
	}
	return string(said)
}

// connect lays a cable between two machines.
func connect(a, b *machine) {
	a.t.Helper()
	a.ip("link", "add", "lan0", "type", "veth", "peer", "name", "lan0", "netns", b.namespace())
	for i, m := range []*machine{a, b} {
		m.addr = fmt.Sprintf("10.77.0.%d", i+1)
		m.ip("addr", "add", m.addr+"/24", "dev", "lan0")
		m.ip("link", "set", "lan0", "up")
	}
}

// within calls do on a thread whose sockets are those of the machine.
func (m *machine) within(do func() error) (err error) {
	var done sync.WaitGroup
	done.Go(func() {
		runtime.LockOSThread()
		if err = unix.Setns(m.fd, unix.CLONE_NEWNET); err == nil {
			err = do()
		}
	})
	done.Wait()
	return err
}

// dial connects from the machine to a literal address.
func (m *machine) dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	err = m.within(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// client sends requests from the machine. It follows no redirects.
func (m *machine) client() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DialContext: m.dial, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// serve starts the program on the machine, bound to loopback or as args have it. It returns the
// folder of its data and the file that has what it writes.
func (m *machine) serve(args ...string) (data, log string) {
	m.t.Helper()
	data, log = filepath.Join(m.t.TempDir(), "data"), filepath.Join(m.t.TempDir(), "log")
	written, err := os.Create(log)
	if err != nil {
		m.t.Fatal(err)
	}
	defer written.Close()
	if len(args) == 0 {
		args = []string{"--addr", "127.0.0.1:8080"}
	}
	program := exec.Command(os.Args[0], append([]string{"serve", "--data", data, "--threads", "1"}, args...)...)
	m.inside(program)
	program.Env = append(os.Environ(), "HOME="+m.t.TempDir(), asProgram+"=1")
	program.Stderr = written
	out, err := program.StdoutPipe()
	if err == nil {
		err = program.Start()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		_ = program.Process.Signal(syscall.SIGTERM)
		if err := program.Wait(); err != nil {
			m.t.Errorf("the server ended with %v", err)
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		said, _ := os.ReadFile(log)
		m.t.Fatalf("the server did not start: %q, %v: %s", line, err, said)
	}
	return data, log
}

// browse opens a browser on the machine with a window of a size.
func (m *machine) browse(width, height int64, phone bool) *window {
	m.t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		fixtures.Skip(m.t, "there is no Chromium")
	}
	// Chromium ends all requests when the machine gets another address, and scripts that were on their way are
	// not loaded again.
	eventually(m.t, "the addresses of the machine are settled", func() bool { return m.ip("-6", "addr", "show", "tentative") == "" })
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(m.t.TempDir()),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-dev-shm-usage", true), chromedp.ModifyCmdFunc(m.inside))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	m.t.Cleanup(func() { cancel(); stop() })
	w := &window{t: m.t, ctx: ctx}
	w.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetDeviceMetricsOverride,
			emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 2, Mobile: phone})
		return err
	}))
	return w
}

// window is a page in headless Chromium.
type window struct {
	t   *testing.T
	ctx context.Context
}

func (w *window) do(steps ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	if err := chromedp.Do(w.ctx, steps...); err != nil {
		w.t.Fatalf("the browser failed: %v", err)
	}
}

func (w *window) value(expression string) string {
	w.t.Helper()
	v, err := chromedp.Run(w.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		w.t.Fatalf("cannot evaluate %s: %v", expression, err)
	}
	return v
}

func (w *window) until(condition string) {
	w.t.Helper()
	eventually(w.t, condition, func() bool {
		v, err := chromedp.Run(w.ctx, chromedp.Evaluate[string]("(() => { try { return String(Boolean("+condition+")) } catch { return '' } })()"))
		return err == nil && v == "true"
	})
}

// scan reads the QR code that an element draws. The reader is told that the picture is of a code alone: its search for
// a code in a photograph does not find one in three hundred.
func (w *window) scan(selector string) string {
	w.t.Helper()
	shot, err := chromedp.Run(w.ctx, chromedp.Screenshot(selector+" path"))
	if err != nil {
		w.t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		w.t.Fatal(err)
	}
	bitmap, err := gozxing.NewBinaryBitmapFromImage(picture)
	if err != nil {
		w.t.Fatal(err)
	}
	alone := map[gozxing.DecodeHintType]any{gozxing.DecodeHintType_PURE_BARCODE: true}
	read, err := qrcode.NewQRCodeReader().Decode(bitmap, alone)
	if err != nil {
		w.t.Fatalf("the code cannot be read: %v", err)
	}
	return read.GetText()
}

// talk opens a chat of the server on the machine.
func (m *machine) talk() *testChat {
	m.t.Helper()
	conn, _, err := websocket.Dial(context.Background(), "http://127.0.0.1:8080/ws", &websocket.DialOptions{
		HTTPClient: m.client(), HTTPHeader: http.Header{"Origin": {"http://127.0.0.1:8080"}},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	conn.SetReadLimit(64 << 20)
	m.t.Cleanup(func() { conn.CloseNow() })
	return &testChat{t: m.t, conn: conn}
}

// secret is a word of a chat that nobody shares.
const secret = "heliotrope"

// TestNetwork_APhoneReadsAlongAndReachesNothingElse shares a chat of a server that is bound to
// loopback, and reads it on another machine.
func TestNetwork_APhoneReadsAlongAndReachesNothingElse(t *testing.T) {
	if !asMachines(t) {
		return
	}
	house, phone := newMachine(t), newMachine(t)
	connect(house, phone)
	data, log := house.serve()
	at := house.addr + ":8080"
	if _, err := phone.dial(t.Context(), "tcp", at); err == nil {
		t.Error("the server is reachable before anything is shared")
	}
	hidden := house.talk()
	hidden.ask("What is "+secret+"?", 4)
	hidden.finish()
	chat := house.talk()
	chat.ask("What is rain?", 12)
	chat.finish()

	owner := house.browse(1280, 900, false)
	owner.do(chromedp.Navigate("http://127.0.0.1:8080/c/" + chat.id))
	owner.until("document.querySelectorAll('.answer').length === 1")
	owner.until("document.querySelector('[data-context-bar]').getAttribute('aria-label') !== 'Context: nothing used'") // its scripts run
	owner.do(chromedp.Click("[data-share]"))
	owner.until("document.querySelector('#share[open] .newshare')")
	owner.do(chromedp.Click("#share .newshare [type=submit]"))
	owner.until("document.querySelector('#share .qr')")
	link := owner.scan("#share .qr")
	if shown := owner.value("document.querySelector('#share .sharelink input').value"); link != shown || !strings.HasPrefix(link, "http://"+at+"/s/") {
		t.Fatalf("the code reads as %q, the link beside it is %q, want one at %s", link, shown, at)
	}
	token := link[strings.LastIndexByte(link, '/')+1:]

	reader := phone.browse(390, 844, true)
	reader.do(chromedp.Navigate(link))
	reader.until("document.querySelector('[data-dot].live') && document.querySelectorAll('#thread .answer').length === 1")
	reader.value(`(() => {
		globalThis.updates = 0
		new MutationObserver(() => updates++).observe(document.getElementById('thread'), { subtree: true, childList: true, characterData: true })
		new MutationObserver(() => globalThis.over ||= document.querySelector('[data-status]').textContent === 'This link has ended' && Date.now())
			.observe(document.querySelector('[data-status]'), { subtree: true, childList: true, characterData: true })
	})()`)
	chat.state = "asked"
	chat.do("send", map[string]any{"text": "And snow?", "settings": map[string]any{ // hardly any token is likelier than others, so that it is long on most machines
		"temperature": 20, "top_k": 0, "top_p": 1, "min_p": 0, "seed": 1, "max_tokens": 6000,
	}})
	chat.until("it is written", func() bool { return chat.tokens > 0 })
	reader.until("updates > 0 && document.querySelectorAll('#thread .answer').length === 2")

	line := newStreamReader(t, phone, link+"/events")
	tryEverything(t, phone, link, chat.id, hidden.id)
	nothingKeeps(t, token, data, log)
	ended := time.Now()
	owner.do(chromedp.Click("#share .sharelink .danger"))
	reader.until("globalThis.over")
	over, err := strconv.ParseInt(reader.value("over"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	closed := line.closed(t)
	t.Logf("after the owner ended the link, the page said so in %v and the stream was closed in %v; it had changed %s times",
		time.UnixMilli(over).Sub(ended).Round(time.Millisecond), closed.Sub(ended).Round(time.Millisecond), reader.value("updates"))
	eventually(t, "the listener is closed", func() bool {
		conn, err := phone.dial(t.Context(), "tcp", at)
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	chat.do("stop", map[string]any{"answer": chat.answer})
	chat.finish()
	nothingKeeps(t, token, data, log)
}

// streamReader reads a stream until the server closes it.
type streamReader struct{ ended chan time.Time }

func newStreamReader(t *testing.T, m *machine, address string) streamReader {
	t.Helper()
	response, err := m.client().Get(address)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v, %v", address, response, err)
	}
	r := streamReader{make(chan time.Time, 1)}
	go func() {
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		r.ended <- time.Now()
	}()
	return r
}

func (r streamReader) closed(t *testing.T) time.Time {
	t.Helper()
	select {
	case at := <-r.ended:
		return at
	case <-time.After(90 * time.Second):
		t.Fatal("the server does not close a stream whose link has ended")
		return time.Time{}
	}
}

// tryEverything asks the listener of shared chats for every route of the server, in every way that
// leads to a websocket too, with every command, and for all that a shared page refers to.
func tryEverything(t *testing.T, m *machine, link, shared, hidden string) {
	t.Helper()
	at, _, _ := strings.Cut(strings.TrimPrefix(link, "http://"), "/s/")
	client, asked := m.client(), 0
	ask := func(method, path, body string, header http.Header) (int, string) {
		t.Helper()
		r, err := http.NewRequest(method, "http://"+at+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = header
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		if asked++; strings.Contains(string(text), secret) || strings.Contains(string(text), hidden) {
			t.Errorf("%s %s shows another chat", method, path)
		}
		return response.StatusCode, string(text)
	}
	refuses := func(method, path, body string, header http.Header) {
		t.Helper()
		if status, text := ask(method, path, body, header); status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
			t.Errorf("%s %s answers %d: %.200s", method, path, status, text)
		}
	}
	from := func(more ...string) http.Header {
		h := http.Header{"Origin": {"http://" + at}}
		for i := 0; i < len(more); i += 2 {
			h.Set(more[i], more[i+1])
		}
		return h
	}
	upgrade := from("Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
	service := live.New(noEngine{}, live.Options{})
	defer service.Close()
	for _, route := range handlers.New(handlers.Config{Engine: noEngine{}, Live: service}).Routes() {
		for _, chat := range []string{shared, hidden} {
			path := strings.NewReplacer(":id", chat, ":answer", "2", ":token", "wrong", "*", "x").Replace(route.Path)
			refuses(route.Method, path, "", from())
			if route.Method == http.MethodGet {
				refuses(http.MethodGet, path, "", upgrade)
			}
		}
	}
	page, _ := url.Parse(link)
	for _, do := range []string{"send", "stop", "typing"} {
		body := fmt.Sprintf(`{"do":%q,"text":"hostile"}`, do)
		for _, cookie := range []string{"", "m40_writer=" + strings.Repeat("A", 26)} {
			if status, text := ask("POST", page.Path+"/write", body, from("Content-Type", "application/json", "Cookie", cookie)); status != http.StatusForbidden {
				t.Errorf("who was not given the keyboard does %s: %d %.200s", do, status, text)
			}
		}
	}
	for _, path := range []string{page.Path, page.Path + "/events"} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			refuses(method, path, "", from())
		}
	}
	for _, command := range commandsOfPages(t) {
		body := fmt.Sprintf(`{"type":%q,"ref":1,"chat":%q}`, command, hidden)
		for _, path := range []string{"/command", "/ws", page.Path, page.Path + "/events"} {
			refuses("POST", path, body, from("X-Session", page.Path))
		}
	}
	if asked < 200 {
		t.Errorf("only %d requests were made", asked)
	}
	for queue, seen := []string{page.Path}, map[string]bool{}; len(queue) > 0; queue = queue[1:] {
		path := queue[0]
		if seen[path] || path == page.Path+"/events" { // that is read already, and does not end
			continue
		}
		seen[path] = true
		status, text := ask("GET", path, "", from())
		if status != http.StatusOK || !strings.HasPrefix(path, "/static/") && !strings.HasPrefix(path, page.Path) {
			t.Errorf("a shared page leads to %s, which answers %d", path, status)
		}
		for _, found := range references.FindAllStringSubmatch(text, -1) {
			if to, err := page.Parse(found[1]); err == nil && to.Host == page.Host && !to.Query().Has("grow") && strings.HasPrefix(path, page.Path) {
				queue = append(queue, to.Path)
			}
		}
	}
	t.Logf("%d requests found nothing but the shared chat", asked)
}

// noEngine is that of a server of which only the routes are of interest.
type noEngine struct{ handlers.Engine }

var (
	references = regexp.MustCompile(`(?:href|src|action|data-follow)="([^"#]+)"`)
	commandOf  = regexp.MustCompile(`(?m)^\tcase "(\w+)":$`)
)

// commandsOfPages returns the types of the commands that a page can send.
func commandsOfPages(t *testing.T) (types []string) {
	t.Helper()
	source, err := os.ReadFile("../stream/commands.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range commandOf.FindAllSubmatch(source, -1) {
		types = append(types, string(found[1]))
	}
	if len(types) < 14 {
		t.Fatalf("only %d commands are known: %v", len(types), types)
	}
	return types
}

// nothingKeeps looks for a token where it must not be: in what the server has written, in its
// data, and in the arguments and environment of every process.
func nothingKeeps(t *testing.T, token, data, log string) {
	t.Helper()
	files := []string{log}
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"cmdline", "environ"} {
		found, err := filepath.Glob("/proc/[0-9]*/" + of)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	read := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // a process that has ended, or is somebody else's
		}
		if read++; bytes.Contains(text, []byte(token)) {
			t.Errorf("%s has the token of a link", file)
		}
	}
	if read < 10 {
		t.Errorf("only %d files could be read", read)
	}
}
