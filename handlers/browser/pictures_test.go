package browser

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/activity"
	"m40-llm/handlers/gate"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/people"
	"m40-llm/handlers/share"
	"m40-llm/infer"
	"m40-llm/store"
	"m40-llm/web/states"
)

// TestPictures makes the pictures of docs/sharing.md, in the folder M40_LLM_PICTURES: each state on a phone
// and on a desktop, in both themes. See make pictures.
func TestPictures(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("M40_LLM_PICTURES")
	if dir == "" {
		t.Skip("M40_LLM_PICTURES names no folder")
	}
	p := newPhotographer(t, dir)
	link := p.sharing()
	p.together(link)
	p.comingIn()
	p.managing()
}

// photographer has a server, as its owner reaches it, as others in the network do, and with TLS.
type photographer struct {
	t                  *testing.T
	dir                string
	engine             *handlerstest.Script
	people             *people.Service
	running            *activity.Service
	home, lan, withTLS *httptest.Server
	owner, other       *browser
	anna               store.Person
	answering          *handlerstest.ScriptedAnswer
}

func newPhotographer(t *testing.T, dir string) *photographer {
	t.Helper()
	db := handlerstest.OpenStore(t)
	p := &photographer{t: t, dir: dir, engine: handlerstest.NewScript(), people: handlerstest.PeopleOf(t, db, "")}
	p.engine.Set(func(s *infer.Status) { s.Model.Name = "guide" })
	chats := live.New(p.engine, live.Options{Store: db})
	t.Cleanup(chats.Close)
	p.running = activity.New(p.people.Name)
	serve := func(encrypted bool) *httptest.Server {
		reach := share.NewReach(share.ReachOptions{Server: netip.MustParseAddrPort("0.0.0.0:8080"), Encrypted: encrypted,
			Addresses: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.168.1.40")}, nil }})
		return handlerstest.Server(t, p.engine, func(c *handlers.Config) {
			c.Asks, c.People, c.Live, c.Activity, c.Reach = gate.AsksOthers, p.people, chats, p.running, reach
			c.Announced = func() string { return "m40-llm.local" }
			if encrypted {
				c.Fingerprint = "5D:0C:1B:9E:42:7F:A8:33:61:D4:0E:F7:28:BB:90:5A:C6:17:E3:84:2D:79:B0:4C:F5:16:A2:6E:8D:31:57:C9"
			}
		})
	}
	p.home, p.lan, p.withTLS = serve(false), serve(false), serve(true)
	handlerstest.FromAddress(p.lan, "192.168.1.23:5000", false)
	p.owner, p.other = openBrowser(t, p.home), openBrowser(t, p.lan)
	var err error
	if p.anna, err = p.people.Add(t.Context(), access.Local, "Anna"); err != nil {
		t.Fatal(err)
	}
	if _, err = p.people.Add(t.Context(), access.Local, "Ben"); err != nil {
		t.Fatal(err)
	}
	return p
}

// take takes the four pictures of a state of a page, and leaves the page as wide as it should be next.
func (p *photographer) take(b *browser, state string, phoneNext bool) {
	p.t.Helper()
	for _, screen := range []struct {
		name          string
		width, height int64
	}{{"phone", 390, 844}, {"desktop", 1440, 900}} {
		b.size(screen.width, screen.height, screen.name == "phone")
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			b.settled()
			shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
			if err != nil {
				p.t.Fatal(err)
			}
			file := filepath.Join(p.dir, fmt.Sprintf("%s-%s-%s.png", state, screen.name, scheme))
			if err := os.WriteFile(file, inFewColours(p.t, shot), 0o644); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	b.scheme("light")
	if phoneNext {
		b.size(390, 844, true)
	}
}

// inFewColours returns a picture with its 256 most frequent colours, in place of each other the nearest. Text
// and icons on plain grounds have few, and the file is a third as large.
func inFewColours(t *testing.T, data []byte) []byte {
	t.Helper()
	decoded, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	bounds := decoded.Bounds()
	full := image.NewRGBA(bounds)
	draw.Draw(full, bounds, decoded, bounds.Min, draw.Src)
	count := map[color.RGBA]int{}
	for y := range bounds.Dy() {
		for x := range bounds.Dx() {
			count[full.RGBAAt(x, y)]++
		}
	}
	var colours []color.RGBA
	for c := range count {
		colours = append(colours, c)
	}
	slices.SortFunc(colours, func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	var palette color.Palette
	for _, c := range colours[:min(256, len(colours))] {
		palette = append(palette, c)
	}
	few, nearest := image.NewPaletted(bounds, palette), map[color.RGBA]uint8{}
	for y := range bounds.Dy() {
		for x := range bounds.Dx() {
			c := full.RGBAAt(x, y)
			index, known := nearest[c]
			if !known {
				index = uint8(palette.Index(c))
				nearest[c] = index
			}
			few.SetColorIndex(x, y, index)
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, few); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const rainbow = "A rainbow is sunlight that raindrops send back.\n\n1. Light **enters** a drop and is refracted; blue more than red.\n" +
	"2. It is **reflected** at the back of the drop.\n3. It **leaves** the drop and is refracted again.\n\nAll drops at about 42° from the point opposite the sun " +
	"send red to your eye, and those at 40° violet. So you see bands, each from other drops."

// words writes a text as fast as a small model does.
func (p *photographer) words(answer *handlerstest.ScriptedAnswer, text string) {
	for word := range strings.SplitAfterSeq(text, " ") {
		answer.Write(word)
		time.Sleep(25 * time.Millisecond)
	}
}

// sharing shares a chat and reads it on another machine, and returns the link as that machine has it.
func (p *photographer) sharing() (link string) {
	b := p.owner
	b.size(1440, 900, false)
	b.open("/")
	b.say("Why does a rainbow have bands of colour?")
	answer := p.engine.Next(p.t)
	p.words(answer, rainbow)
	answer.Finish()
	b.until(idle)
	b.click("[data-share]")
	b.until("document.querySelector('#share[open] .newshare')")
	p.take(b, "share-dialog", false)
	b.click("#share .newshare [type=submit]")
	b.until("document.querySelector('#share .sharelink input')?.value")
	p.take(b, "share-link", false)
	link = p.lan.URL + b.shownPath()
	b.press("Escape", 27)

	p.other.followed(link)
	b.say("And why is there sometimes a second one?")
	p.answering = p.engine.Next(p.t)
	p.words(p.answering, "The second bow comes from light that is reflected **twice** in the drops.\n\nThat turns the order of its")
	p.other.until("document.querySelector('[data-tail]')?.innerText.endsWith('of its')")
	p.take(p.other, "reader-live", true)
	return link
}

// together gives the keyboard to a reader, takes it back and ends the link.
func (p *photographer) together(link string) {
	b, other := p.owner, p.other
	p.words(p.answering, " colours around: red is inside.")
	p.answering.Finish()
	b.until(idle)
	other.until("!document.querySelector('[aria-busy]')")
	other.click("[data-ask-write]")
	other.write("#name", "Ben")
	p.take(other, "reader-asks", true)
	other.click("#ask [type=submit]")
	other.until("!document.querySelector('#asked').hidden")
	p.take(other, "reader-asked", true)
	b.until("!document.querySelector('[data-asks]').hidden")
	p.take(b, "owner-is-asked", false)
	b.click("[data-asks] [data-set=writes]")
	other.until("!document.querySelector('#composer').hidden")
	other.write("#message", "Can one see a whole circle?")
	b.until("document.querySelector('#composer [data-typing]').innerText === 'Ben is typing'")
	p.take(b, "owner-gave-keyboard", false)
	other.write("#message", " ")
	b.size(1440, 900, false)
	b.write("#message", "Or ")
	other.until("document.querySelector('#composer [data-typing]').innerText === 'The owner is typing'")
	p.take(other, "reader-writes", true)
	b.script("document.querySelector('#message').value = ''")
	b.click("[data-share]")
	b.click("#share .sharelink .danger")
	other.until("document.querySelector('[data-status]').innerText === 'This link has ended'")
	p.take(other, "reader-ended", true)
	other.do(chromedp.Navigate(link), chromedp.WaitReady("main.lone"))
	p.take(other, "nothing-under-the-link", true)
	b.press("Escape", 27)
}

// comingIn lets a device of Anna in.
func (p *photographer) comingIn() {
	b, other := p.owner, p.other
	at := func(server *httptest.Server, path, ready string) {
		b.do(chromedp.Navigate(server.URL + path))
		b.until("document.readyState === 'complete' && " + ready)
	}
	at(p.withTLS, "/people/"+p.anna.ID, "document.querySelector('h1')")
	b.click("form[action$='/invite'] button")
	b.until("document.querySelector('.paircode')")
	p.take(b, "pairing-tls", false)
	at(p.home, "/people/"+p.anna.ID, "document.querySelector('h1')")
	b.click("form[action$='/invite'] button")
	b.until("document.querySelector('.paircode')")
	p.take(b, "pairing", false)
	code := b.value("document.querySelector('.paircode').innerText")

	made, err := p.people.Invite(p.t.Context(), access.Local, store.OwnerID)
	if err != nil {
		p.t.Fatal(err)
	}
	other.do(chromedp.Navigate(p.lan.URL+"/login?link="+made.Link), chromedp.WaitReady("main.lone"))
	p.take(other, "login-link", true)
	err = p.people.ChangePassphrase(p.t.Context(), access.Of(p.anna), p.anna.ID, people.PassphraseChange{New: "rain falls mainly sideways"})
	if err != nil {
		p.t.Fatal(err)
	}
	other.do(chromedp.Navigate(p.lan.URL+"/login"), chromedp.WaitReady("#passphrase"))
	other.fill("#name", "Anna")
	other.fill("#passphrase", "rain falls mainly upwards")
	other.click(".login .primary")
	other.until("document.querySelector('#wrong')?.textContent.includes('wrong')")
	p.take(other, "login", true)
	other.fill("#key", code)
	other.click(".login.or .btn")
	other.until("location.pathname === '/'")
	other.until(wired)
	p.take(other, "not-encrypted", true)
	other.do(chromedp.Navigate(p.lan.URL + "/people/" + p.anna.ID))
	other.until("document.querySelector('#h-devices')")
	p.take(other, "own-page", true)
}

// managing looks at the pages of people and of what they do, and logs Anna's device out.
func (p *photographer) managing() {
	b, other := p.owner, p.other
	at := func(path, ready string) {
		b.do(chromedp.Navigate(p.home.URL + path))
		b.until("document.readyState === 'complete' && " + ready)
	}
	at("/people", "document.querySelector('.plainlist li')")
	p.take(b, "people", false)
	at("/people/"+p.anna.ID, "document.querySelector('#h-keys')")
	b.fill("input[placeholder='What it is for']", "Editor")
	b.click("form[action$='/keys'] button")
	b.until("document.querySelector('#newkey')?.value")
	p.take(b, "api-key", false)
	at("/people/"+p.anna.ID, "document.querySelector('#h-limit')")
	b.script("const d = [...document.querySelectorAll('details')].at(-1); d.open = true; addEventListener('resize', () => d.scrollIntoView({ block: 'end' }))")
	p.take(b, "person", false)

	p.engine.Set(func(s *infer.Status) { s.Running, s.Queued, s.WaitS, s.Decode = 3, 1, 20, 38.2 })
	token := handlerstest.WordEvent(1, "x")
	list := activeAnswers{p.t, p.running}
	list.start(activity.Origin{Person: store.OwnerID, Chat: "1"}, token, token)
	list.start(activity.Origin{Person: p.anna.ID, Key: "Editor"}, token)
	list.start(activity.Origin{Person: p.anna.ID, Chat: "2"}, infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 1200, Total: 4000}})
	list.start(activity.Origin{Person: p.anna.ID, Chat: "3"}, infer.Event{Type: infer.EventQueued, Queued: &infer.Queued{Position: 1, WaitS: 20}})
	at("/activity", "document.querySelectorAll('#activity li').length === 4")
	p.take(b, "activity", false)

	other.do(chromedp.Navigate(p.lan.URL+"/"), chromedp.WaitReady("#message"))
	other.until(wired)
	at("/people/"+p.anna.ID, "document.querySelector('form[action$=\"/devices/revoke\"] button')")
	b.click("form[action$='/devices/revoke'] button")
	b.until("!document.querySelector('form[action$=\"/devices/revoke\"]')")
	other.until("document.querySelector('[data-connbar]').innerText === 'This device was logged out.'")
	p.take(other, "device-logged-out", true)
}

// TestPicturesOfStates makes the pictures of the README that show a state of the storybook, in the folder
// M40_LLM_PICTURES. See make pictures.
func TestPicturesOfStates(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("M40_LLM_PICTURES")
	if dir == "" {
		t.Skip("M40_LLM_PICTURES names no folder")
	}
	b := openBrowser(t, serveStates(t))
	command(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "UTC"})
	for state, file := range map[string]string{"microscope": "microscope.png", "models-compared": "divergence.png"} {
		b.size(1280, 800, false)
		b.do(chromedp.Navigate(b.origin+states.Path+"/"+state), chromedp.WaitReady("main"))
		b.until("'ready' in document.documentElement.dataset")
		b.settled()
		shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), inFewColours(t, shot), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
