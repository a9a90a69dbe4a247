package browser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/chat"
)

// landscape returns a PNG file that one can tell from others on a screenshot.
func landscape(t *testing.T, width, height int) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			sky, hill := uint8(120+100*y/height), float64(height)*(0.6+0.15*math.Sin(9*float64(x)/float64(width)))
			img.Set(x, y, color.RGBA{sky / 2, sky, 235, 255})
			if float64(y) > hill {
				img.Set(x, y, color.RGBA{40, uint8(150 - 80*y/height), 60, 255})
			}
		}
	}
	var file bytes.Buffer
	if err := png.Encode(&file, img); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// handOver dispatches an event with files on an element: drop on dataTransfer, paste on clipboardData.
func handOver(b *browser, event, selector string, files map[string][]byte) {
	b.t.Helper()
	list := [][2]any{}
	for name, data := range files {
		numbers := make([]int, len(data))
		for i, v := range data {
			numbers[i] = int(v)
		}
		list = append(list, [2]any{name, numbers})
	}
	encoded, err := json.Marshal(list)
	if err != nil {
		b.t.Fatal(err)
	}
	make := "new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true })"
	if event == "paste" {
		make = "new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true })"
	}
	b.script(fmt.Sprintf("const data = new DataTransfer(); for (const [name, bytes] of %s) data.items.add(new File([new Uint8Array(bytes)], name, { type: /png/.test(name) ? 'image/png' : '' }));\ndocument.querySelector(%q).dispatchEvent(%s)", encoded, selector, make))
}

const (
	thumbnails = "[...document.querySelectorAll('#attached .thumb img')].filter(i => i.complete && i.naturalWidth).length"
	shownThere = "[...document.querySelectorAll('.you .pics img')].filter(i => i.complete && i.naturalWidth).length"
)

func TestPicturesOfMessagesInABrowser(t *testing.T) {
	t.Parallel()
	engine := handlerstest.NewScript()
	engine.Set(func(s *infer.Status) { s.Model.Name, s.Model.Vision = "gemma", true })
	engine.List(infer.ModelInfo{Name: "gemma", Vision: true}, infer.ModelInfo{Name: "textonly"})
	server, _ := handlerstest.ServeStored(t, engine)
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	hills, field := landscape(t, 400, 260), landscape(t, 240, 300)

	run("pictures that are pasted, or dropped anywhere, are shown with their size and tokens", func(t *testing.T) {
		handOver(b, "paste", "#message", map[string][]byte{"hills.png": hills})
		b.until(thumbnails + " === 1")
		handOver(b, "drop", "header", map[string][]byte{"field.png": field})
		b.until(thumbnails + " === 2")
		b.fill("#message", "Which of them has more sky?")
		b.until("document.querySelector('#attached').innerText.includes('400 × 260 · ') && document.querySelector('#attached').innerText.includes('256 tokens')")
		b.until("/^5\\d\\d tokens, /.test(document.querySelector('[data-cost]').innerText)")
		b.look(axe(t), "pictures are attached")
		b.shot("pictures-attached")
	})

	run("the detail says what it costs, and decides what the pictures do", func(t *testing.T) {
		const dial = "document.querySelector('#detail').innerText.replace(/\\s+/g, ' ').trim()"
		const chosen = "document.querySelector('#detail [aria-pressed=true]').dataset.detail"
		b.until(dial + " === 'Detail Low 128 Medium 256 Full 512' && " + chosen + " === ''")
		b.click("#detail [data-detail=low]")
		b.until(chosen + " === 'low' && document.querySelector('#attached').innerText.includes('64 tokens') && /^1\\d\\d tokens, /.test(document.querySelector('[data-cost]').innerText)")
		if got := b.value(dial); got != "Detail Low 128 Medium 256 Full 512" {
			t.Errorf("the dial says %s", got)
		}
		b.look(axe(t), "pictures in low detail")
		b.shot("pictures-detail")
	})

	run("one that is there already is not attached again, and one is removed", func(t *testing.T) {
		handOver(b, "drop", "#thread", map[string][]byte{"again.png": hills})
		b.until("!document.querySelector('#attached [aria-busy]')")
		handOver(b, "drop", "#thread", map[string][]byte{"third.png": landscape(t, 30, 30)})
		b.until("document.querySelectorAll('#attached .thumb').length === 3 && !document.querySelector('#attached [aria-busy]')")
		b.settled() // the list is drawn anew when the draft has been counted
		b.click("#attached li:last-child button")
		b.until("document.querySelectorAll('#attached .thumb').length === 2")
	})

	run("what is no picture is refused in words, and the message stays", func(t *testing.T) {
		handOver(b, "drop", "#composer", map[string][]byte{"broken.png": hills[:len(hills)-40]})
		b.until("document.querySelector('#senderror [data-title-of-error]').innerText.includes('broken.png was not attached') && document.querySelector('#senderror [data-error]').innerText.includes('damaged')")
		if got := b.value("document.querySelector('#message').value + document.querySelectorAll('#attached .thumb').length"); got != "Which of them has more sky?2" {
			t.Errorf("the draft is %q", got)
		}
		b.shot("pictures-refused")
		b.forgive("400 (Bad Request)")
	})

	run("a model that cannot see is named before sending, and one that can is offered", func(t *testing.T) {
		b.script("document.querySelector('#model-menu button[value=textonly]').click()")
		b.until("document.querySelector('#sight').checkVisibility() && document.querySelector('#sight').innerText.includes('textonly cannot see pictures.')")
		b.look(axe(t), "the model cannot see")
		b.shot("pictures-blind")
		b.click("#sight button")
		b.until("!document.querySelector('#sight').checkVisibility()")
	})

	run("the message shows them, and the page what is read", func(t *testing.T) {
		b.script("document.querySelector('#composer').requestSubmit()")
		a := engine.Next(t)
		if m := a.Request.Messages[0]; len(m.Pictures) != 2 || !bytes.Equal(m.Pictures[0], hills) || !bytes.Equal(m.Pictures[1], field) || m.DetailOf(0) != chat.Low || m.DetailOf(1) != chat.Low {
			t.Errorf("the engine got %d pictures in the details %q", len(m.Pictures), m.Details)
		}
		a.Send(infer.Event{Type: infer.EventPictures, Pictures: &infer.Pictures{Done: 1, Total: 2}})
		b.until("document.querySelector('.wait').checkVisibility() && document.querySelector('.wait').innerText.includes('Reading the pictures')")
		b.shot("pictures-read")
		a.Write("The first one has.")
		a.Finish()
		b.until(idle)
		b.until(shownThere + " === 2")
		b.look(axe(t), "a message with pictures")
	})

	run("a picture opens in full size, and closes", func(t *testing.T) {
		b.click(".you .pics a")
		b.until("document.querySelector('#viewer').open && document.querySelector('#viewer img').naturalWidth === 400")
		b.look(axe(t), "a picture in full size")
		b.shot("pictures-viewer")
		b.click("#viewer [data-close]")
		b.until("!document.querySelector('#viewer').open")
	})

	run("they are there after a reload, and stay with an edited message", func(t *testing.T) {
		b.open(b.value("location.pathname"))
		b.until(shownThere + " === 2")
		b.click(".you [data-edit]")
		b.fill(".editor textarea", "Which has less?")
		b.click(".editor [type=submit]")
		a := engine.Next(t)
		if m := a.Request.Messages[0]; len(m.Pictures) != 2 || m.DetailOf(0) != chat.Low || m.DetailOf(1) != chat.Low {
			t.Errorf("the engine got %d pictures in the details %q", len(m.Pictures), m.Details)
		}
		a.Write("The second one.")
		a.Finish()
		b.until(idle)
		b.until(shownThere + " === 2")
	})

	for _, screen := range [][2]int64{{390, 844}, {820, 1180}, {1440, 900}} {
		run(fmt.Sprintf("nothing overflows at %d pixels", screen[0]), func(t *testing.T) {
			b.size(screen[0], screen[1], screen[0] < 500)
			handOver(b, "drop", "#composer", map[string][]byte{"field.png": field})
			b.until(thumbnails + " === 1")
			for _, scheme := range []string{"light", "dark"} {
				b.scheme(scheme)
				b.settled()
				b.shot(fmt.Sprintf("pictures-%d-%s", screen[0], scheme))
			}
			b.scheme("light")
			if b.value("document.documentElement.scrollWidth > innerWidth") == "true" {
				t.Error("the page scrolls sideways")
			}
			if b.value("[...document.querySelectorAll('#attached li, .detail, .sight, .pics li')].some(el => el.scrollWidth > el.clientWidth + 1)") == "true" {
				t.Error("a thumbnail is wider than its frame")
			}
			if camera, touch := b.value("document.querySelector('[data-camera]').checkVisibility()"), b.value("matchMedia('(pointer: coarse)').matches"); camera != touch {
				t.Errorf("the button for the camera is shown: %s, want %s", camera, touch)
			}
			b.settled()
			b.click("#attached button")
			b.until("document.querySelectorAll('#attached .thumb').length === 0")
		})
	}
	b.clean()
}
