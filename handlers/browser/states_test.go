package browser

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/labstack/echo/v4"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer/fixtures"
	"m40-llm/web/states"
)

// What a state shows is compared with testdata/states, where make states puts it: the text exactly, and
// the picture as a thumbnail, because another Chromium has other fonts and smooths edges in another way.
// A thumbnail has a pixel for each square of this many pixels of the page.
const thumbnail = 10

// A picture is another one if more than maxOther of its thumbnail's pixels differ by more than
// maxDifference of 255 greys.
const (
	maxDifference = 32
	maxOther      = 0.01
)

// serveStates starts a server that has the storybook too, whatever the build.
func serveStates(t *testing.T) *httptest.Server {
	t.Helper()
	e := handlers.New(handlerstest.TestConfig(t, &handlerstest.FakeEngine{}))
	book := echo.WrapHandler(states.Handler())
	for _, path := range []string{states.Path, states.Path + "/:name"} {
		if !slices.ContainsFunc(e.Routes(), func(r *echo.Route) bool { return r.Path == path }) {
			e.GET(path, book)
		}
	}
	s := httptest.NewServer(e)
	t.Cleanup(s.Close)
	return s
}

func TestEachStateOfTheStorybookLooksAsItDid(t *testing.T) {
	t.Parallel()
	update := os.Getenv("M40_LLM_UPDATE") == "1"
	const dir = "testdata/states"
	b := openBrowser(t, serveStates(t))
	b.scheme("light") // without motion
	command(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "UTC"})
	texts, err := os.ReadFile(filepath.Join(dir, "texts.txt"))
	if err != nil && !update {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, part := range strings.Split(string(texts), "\n=== ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		want[name] = strings.TrimSpace(text)
	}
	sizes := map[string]int64{} // of pictures: texts alone are compared but in torture
	if update || fixtures.Torture() {
		sizes = map[string]int64{"desktop": 1280, "phone": 390}
	}
	var all strings.Builder
	for _, s := range states.All() {
		t.Run(s.Name, func(t *testing.T) {
			b.size(1280, 800, false)
			b.do(chromedp.Navigate(b.origin+states.Path+"/"+s.Name), chromedp.WaitReady("main"))
			if s.Script {
				b.until("'ready' in document.documentElement.dataset")
			}
			part := "main"
			if strings.HasPrefix(s.Name, "rail") {
				part = "#rail-list"
			}
			text := strings.TrimSpace(b.value("(document.querySelector('dialog[open]') ?? document.querySelector('" + part + "')).innerText.replace(/\\n+/g, '\\n')"))
			fmt.Fprintf(&all, "\n=== %s\n%s\n", s.Name, text)
			if text != want[s.Name] && !update {
				t.Errorf("it says\n%s\n\nwant\n%s", text, want[s.Name])
			}
			for name, width := range sizes {
				b.size(width, 800, width < 500)
				comparePicture(t, filepath.Join(dir, s.Name+"-"+name+".png"), b, update)
			}
		})
	}
	if update {
		if err := os.WriteFile(filepath.Join(dir, "texts.txt"), []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// screenshot returns a picture of the page as a PNG.
func (b *browser) screenshot() []byte {
	b.t.Helper()
	shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	return shot
}

// still returns a picture of the page when it is the same a moment later, from one taken before.
func (b *browser) still(last []byte) []byte {
	b.t.Helper()
	for deadline := time.Now().Add(handlerstest.Hang); time.Now().Before(deadline); {
		shot := b.screenshot()
		if bytes.Equal(last, shot) {
			return shot
		}
		last = shot
	}
	b.t.Fatal("the page does not come to rest")
	return nil
}

// comparePicture compares the page with the thumbnail in a file, or writes that. A page that is not
// like it may still be moving.
func comparePicture(t *testing.T, file string, b *browser, update bool) {
	t.Helper()
	shot := b.screenshot()
	if update {
		var out bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, thumbnailOf(t, b.still(shot))); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	share := otherPixels(thumbnailOf(t, shot), decoded)
	if share > maxOther {
		share = otherPixels(thumbnailOf(t, b.still(shot)), decoded)
	}
	if share > maxOther {
		t.Errorf("%.1f %% of the picture differ from %s, at most %.1f %% may; make states makes it anew", 100*share, file, 100*maxOther)
	}
}

// grey has 16 greys, as thumbnails do.
var grey = func() (p color.Palette) {
	for i := range 16 {
		p = append(p, color.Gray{uint8(17 * i)})
	}
	return p
}()

// thumbnailOf returns the thumbnail of a PNG.
func thumbnailOf(t *testing.T, shot []byte) *image.Paletted {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	return small(picture)
}

// small returns the thumbnail of a picture.
func small(picture image.Image) *image.Paletted {
	size := picture.Bounds().Size().Div(thumbnail)
	out := image.NewPaletted(image.Rectangle{Max: size}, grey)
	sums := make([]int, size.X*size.Y)
	plain := image.NewRGBA(picture.Bounds())
	draw.Draw(plain, plain.Bounds(), picture, image.Point{}, draw.Src)
	for y := range size.Y * thumbnail {
		row := plain.Pix[y*plain.Stride:]
		for x := range size.X * thumbnail {
			sums[y/thumbnail*size.X+x/thumbnail] += 299*int(row[4*x]) + 587*int(row[4*x+1]) + 114*int(row[4*x+2])
		}
	}
	for i, sum := range sums {
		out.Pix[i] = uint8((sum/(1000*thumbnail*thumbnail) + 8) / 17)
	}
	return out
}

// otherPixels returns the share of the pixels that differ; 1 for pictures of different sizes.
func otherPixels(a, b image.Image) float64 {
	if a.Bounds() != b.Bounds() {
		return 1
	}
	size, other := a.Bounds().Size(), 0
	for i := range size.X * size.Y {
		x, _, _, _ := a.At(i%size.X, i/size.X).RGBA()
		y, _, _, _ := b.At(i%size.X, i/size.X).RGBA()
		if d := int(x>>8) - int(y>>8); d > maxDifference || d < -maxDifference {
			other++
		}
	}
	return float64(other) / float64(size.X*size.Y)
}

func TestAPictureThatLacksAnElementIsAnotherOne(t *testing.T) {
	t.Parallel()
	page := image.NewGray(image.Rect(0, 0, 1280, 800))
	for i := range page.Pix {
		page.Pix[i] = 250
	}
	empty := small(page)
	for y := 100; y < 140; y++ { // a panel of 400 x 40
		for x := 100; x < 500; x++ {
			page.SetGray(x, y, color.Gray{80})
		}
	}
	if share := otherPixels(empty, small(page)); share <= maxOther {
		t.Errorf("only %g of it differ", share)
	}
	if share := otherPixels(empty, empty); share != 0 {
		t.Errorf("%g differ from itself", share)
	}
}
