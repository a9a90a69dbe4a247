package picture

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/image/bmp"
)

// Two WebP files of 8 x 6 pixels, for which there is no encoder here: lossy and lossless.
const (
	lossyWebP    = "UklGRkgAAABXRUJQVlA4IDwAAADQAQCdASoIAAYAAsBMJbACdAD0Oh7B4AD+9LgCPuuqZsu4NHu4bnY77ynvBm6GIB/69qZ9CLtHPPM4wAA="
	losslessWebP = "UklGRjAAAABXRUJQVlA4TCMAAAAvB0ABALkyRPQ/dhHR/4CCtm2YwCl/jG9jMB5zEBMA5AX6PwA="
)

// animatedWebP returns an animation on 10 x 8 pixels of one lossy frame, whose corner is at twice left and top.
func animatedWebP(left, top byte) []byte {
	frame := unbase64(lossyWebP)[12:]
	place := []byte{left, 0, 0, top, 0, 0, 7, 0, 0, 5, 0, 0, 100, 0, 0, 0}
	body := []byte("WEBPVP8X\x0a\x00\x00\x00\x02\x00\x00\x00\x09\x00\x00\x07\x00\x00ANIM\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00ANMF")
	body = binary.LittleEndian.AppendUint32(body, uint32(len(place)+len(frame)))
	body = append(append(body, place...), frame...)
	return append(binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(len(body))), body...)
}

func unbase64(s string) []byte {
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return data
}

func encoded(encode func(*bytes.Buffer, image.Image) error, img image.Image) []byte {
	var buf bytes.Buffer
	if err := encode(&buf, img); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

// validFiles returns a small file of each format by name.
func validFiles() map[string][]byte {
	img := image.NewNRGBA(image.Rect(0, 0, 23, 17))
	for i := range img.Pix {
		img.Pix[i] = byte(i*i>>3 | i&3<<6)
	}
	grey := image.NewGray(img.Rect)
	copy(grey.Pix, img.Pix)
	return map[string][]byte{
		"PNG":      encoded(func(b *bytes.Buffer, m image.Image) error { return png.Encode(b, m) }, img),
		"grey PNG": encoded(func(b *bytes.Buffer, m image.Image) error { return png.Encode(b, m) }, grey),
		"JPEG":     encoded(func(b *bytes.Buffer, m image.Image) error { return jpeg.Encode(b, m, nil) }, img),
		"GIF":      encoded(func(b *bytes.Buffer, m image.Image) error { return gif.Encode(b, m, nil) }, img),
		"BMP":      encoded(func(b *bytes.Buffer, m image.Image) error { return bmp.Encode(b, m) }, img),
		"WebP":     unbase64(lossyWebP),
		"lossless": unbase64(losslessWebP),
		"animated": animatedWebP(1, 1),
	}
}

// hostileLimits are small, so that a file that costs more than its header says is seen. Lossless WebP needs the most.
var hostileLimits = Limits{Bytes: 4 << 20, Side: 4096, Pixels: 1 << 20, Memory: 256 << 20}

// checkDecode decodes data, and fails the test if that costs more than the limits, or an error is not one for people.
func checkDecode(t *testing.T, name string, data []byte) (*Image, error) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	img, err := Decode(data, hostileLimits)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > uint64(hostileLimits.Memory) {
		t.Errorf("%s: decoding allocated %d bytes, more than the limit of %d", name, used, hostileLimits.Memory)
	}
	switch {
	case err != nil && (strings.Contains(err.Error(), "runtime error") || !strings.Contains(err.Error(), "; ")):
		t.Errorf("%s: the error does not say what to do: %v", name, err)
	case err == nil && (len(img.Pix) != 3*img.Width*img.Height || img.Width*img.Height > hostileLimits.Pixels || max(img.Width, img.Height) > hostileLimits.Side):
		t.Errorf("%s: decoded %d x %d pixels in %d bytes", name, img.Width, img.Height, len(img.Pix))
	}
	return img, err
}

func TestDamagedFilesAreRefusedOrDecodedWithinTheLimits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	count, refused := 0, 0
	try := func(name string, data []byte) {
		count++
		if _, err := checkDecode(t, name, data); err != nil {
			refused++
		}
	}
	for name, valid := range validFiles() {
		if _, err := checkDecode(t, name, valid); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range 10 {
			try(fmt.Sprintf("%s, cut %d", name, i), valid[:rng.IntN(len(valid))])
			flipped := bytes.Clone(valid)
			for range 1 + rng.IntN(8) {
				flipped[rng.IntN(len(flipped))] ^= byte(1 + rng.IntN(255))
			}
			try(fmt.Sprintf("%s, flipped %d", name, i), flipped)
			header := bytes.Clone(valid)
			header[rng.IntN(min(40, len(header)))] = byte(rng.IntN(256))
			try(fmt.Sprintf("%s, header %d", name, i), header)
		}
	}
	t.Logf("%d files, %d refused", count, refused)
	if count < 200 || refused < count/3 {
		t.Errorf("%d files and %d refused, want at least 200, and a third of them refused", count, refused)
	}
}

func pngChunk(kind string, payload []byte) []byte {
	data := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))
	data = append(append(data, kind...), payload...)
	return binary.BigEndian.AppendUint32(data, crc32.ChecksumIEEE(data[4:]))
}

// pngOf returns a PNG whose header says width x height, with chunks before its pixels: some bytes 0.
func pngOf(width, height uint32, depth, colours byte, pixels int, chunks ...[]byte) []byte {
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, width), height)
	data := append([]byte(pngSignature), pngChunk("IHDR", append(head, depth, colours, 0, 0, 0))...)
	for _, c := range chunks {
		data = append(data, c...)
	}
	return append(append(data, pngChunk("IDAT", zeros(pixels))...), pngChunk("IEND", nil)...)
}

const pngSignature = "\x89PNG\r\n\x1a\n"

// zeros returns a zlib stream of n bytes 0.
func zeros(n int) []byte {
	var buf bytes.Buffer
	w := zlib.NewWriter(&buf)
	w.Write(make([]byte, n))
	w.Close()
	return buf.Bytes()
}

// patched returns a copy of data with values written at an offset.
func patched(data []byte, at int, values ...byte) []byte {
	data = bytes.Clone(data)
	copy(data[at:], values)
	return data
}

func TestBombsAreRefusedInWords(t *testing.T) {
	valid := validFiles()
	sof := bytes.Index(valid["JPEG"], []byte("\xff\xc0"))
	scans := append(bytes.Clone(valid["JPEG"][:len(valid["JPEG"])-2]), bytes.Repeat([]byte("\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00"), 300_000)...)
	canvas := func(flags byte, size ...byte) []byte {
		chunk := append([]byte("VP8X\x0a\x00\x00\x00"), flags, 0, 0, 0)
		chunk = append(chunk, size...)
		body := append(chunk, valid["WebP"][12:]...)
		return append(append([]byte("RIFF"), binary.LittleEndian.AppendUint32(nil, uint32(4+len(body)))...), append([]byte("WEBP"), body...)...)
	}
	for _, c := range []struct {
		name string
		data []byte
		want string // in the error
	}{
		{"a PNG that says 30,000 x 30,000 pixels", pngOf(30000, 30000, 8, 0, 1<<20), "at most 4096"},
		{"a PNG of 20,000 x 1 pixels", pngOf(20000, 1, 8, 0, 1<<20), "20000 x 1 pixels, and a side may have at most 4096"},
		{"a PNG of 1 x 20,000 pixels", pngOf(1, 20000, 8, 0, 1<<20), "1 x 20000 pixels, and a side may have at most 4096"},
		{"a PNG that says the largest sides", pngOf(1<<31-1, 1<<31-1, 16, 6, 1<<20), "PNG file is damaged"},
		{"a PNG within the sides but not the pixels", pngOf(4096, 4096, 8, 0, 1<<20), "more than the limit of 1.0 M pixels"},
		{"a PNG without width", pngOf(0, 10, 8, 0, 1<<20), "PNG file is damaged"},
		{"a PNG with fewer pixels than it says", pngOf(1000, 1040, 16, 6, 1<<20), "PNG file is damaged"},
		{"a PNG with more pixels than it says", pngOf(1, 1, 8, 0, 1<<20), "too much pixel data"},
		{"a PNG whose chunk is longer than the file", append([]byte(pngSignature), 0x7f, 0xff, 0xff, 0xff, 'I', 'H', 'D', 'R'), "PNG file is damaged"},
		{"a JPEG that says 65,535 x 65,535 pixels", patched(valid["JPEG"], sof+5, 0xff, 0xff, 0xff, 0xff), "at most 4096"},
		{"a JPEG with 300,000 scans", patched(scans, sof+5, 3, 0, 4, 0), "300001 scans of 1024 x 768 pixels are too many"},
		{"a GIF that says 65,535 x 65,535 pixels", patched(valid["GIF"], 6, 0xff, 0xff, 0xff, 0xff), "at most 4096"},
		{"a GIF whose frame is larger than its screen", patched(valid["GIF"], 6, 5, 0, 5, 0), "GIF file is damaged"},
		{"a BMP that says 2,147,483,647 pixels of width", patched(valid["BMP"], 18, 0xff, 0xff, 0xff, 0x7f), "at most 4096"},
		{"a WebP whose canvas is larger than its picture", canvas(0, 0xff, 0x0f, 0, 0xff, 0, 0), "two different sizes"},
		{"a WebP that says 16,777,216 pixels of width", canvas(0, 0xff, 0xff, 0xff, 0, 0, 0), "WebP file is damaged"},
		{"a WebP that says 2 GB", patched(valid["WebP"], 4, 0xff, 0xff, 0xff, 0x7f), "its end is missing"},
		{"an animated WebP without frames", canvas(2, 7, 0, 0, 5, 0, 0), "an animation without frames"},
		{"an animated WebP whose canvas is too large", patched(animatedWebP(0, 0), 24, 0xff, 0xff, 0xff), "at most 4096"},
		{"an animated WebP whose frame is outside of its canvas", animatedWebP(2, 0), "outside of its canvas"},
		{"an animated WebP whose frame is cut", animatedWebP(0, 0)[:60], "its end is missing"},
		{"a file larger than the limit", make([]byte, hostileLimits.Bytes+1), "more than the limit of 4.2 MB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := checkDecode(t, c.name, c.data)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestFilesThatAreNoBombsAreDecoded(t *testing.T) {
	gifFrames := gif.GIF{}
	for range 200 {
		gifFrames.Image = append(gifFrames.Image, image.NewPaletted(image.Rect(0, 0, 30, 20), color.Palette{color.Black, color.White}))
		gifFrames.Delay = append(gifFrames.Delay, 1)
	}
	var animated bytes.Buffer
	if err := gif.EncodeAll(&animated, &gifFrames); err != nil {
		t.Fatal(err)
	}
	var texts [][]byte
	for range 1000 {
		texts = append(texts, pngChunk("tEXt", []byte("a\x00b")))
	}
	for _, c := range []struct {
		name          string
		data          []byte
		width, height int
	}{
		{"a GIF of 200 frames gives its first", animated.Bytes(), 30, 20},
		{"a PNG with compressed text that would have 16 MiB", pngOf(100, 50, 8, 0, 101*50, pngChunk("zTXt", append([]byte("a\x00\x00"), zeros(16<<20)...))), 100, 50},
		{"a PNG with 1,000 chunks of text", pngOf(100, 50, 8, 0, 101*50, texts...), 100, 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			img, err := checkDecode(t, c.name, c.data)
			if err != nil {
				t.Fatal(err)
			}
			if img.Width != c.width || img.Height != c.height {
				t.Errorf("got %d x %d", img.Width, img.Height)
			}
		})
	}
}

func TestFilesOfOtherKindsAreRefusedByName(t *testing.T) {
	for _, c := range []struct{ name, data, want string }{
		{"HEIC", "\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic", "HEIC files are not supported; convert it to JPEG"},
		{"HEIF of another brand", "\x00\x00\x00\x18ftypmif1\x00\x00\x00\x00mif1heic", "HEIC files are not supported"},
		{"AVIF", "\x00\x00\x00\x1cftypavif\x00\x00\x00\x00avifmif1", "AVIF files are not supported; convert it to PNG or JPEG"},
		{"SVG", `<svg xmlns="http://www.w3.org/2000/svg"/>`, "SVG files are not supported; draw it as PNG"},
		{"SVG behind a declaration", "\xef\xbb\xbf<?xml version='1.0'?>\n<!-- a -->\n<SVG/>", "SVG files are not supported"},
		{"TIFF", "II*\x00\x08\x00\x00\x00", "TIFF files are not supported"},
		{"JPEG XL", "\xff\x0a\x00", "JPEG XL files are not supported"},
		{"PDF", "%PDF-1.7", "PDF files are not supported; save the page as PNG"},
		{"a video", "\x00\x00\x00\x18ftypisom", "video (MP4 or QuickTime) files are not supported; send single frames"},
		{"HTML", "<html>", "no picture of a known format; send PNG, JPEG, WebP, GIF or BMP"},
		{"text", "hello", "no picture of a known format"},
		{"nothing", "", "is empty; send the whole file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := checkDecode(t, c.name, []byte(c.data)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestABudgetRefusesWhatCanNeverFitAndWaitsForTheRest(t *testing.T) {
	data := validFiles()["PNG"]
	info, err := Inspect(data, DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewBudget(int64(info.Memory)-1).Decode(t.Context(), data, DefaultLimits); err == nil || !strings.Contains(err.Error(), "needs up to") {
		t.Errorf("a file larger than the budget: got error %v", err)
	}
	b := NewBudget(int64(info.Memory))
	if img, err := b.Decode(t.Context(), data, DefaultLimits); err != nil || img.Width != info.Width {
		t.Errorf("a file of the size of the budget: error %v", err)
	}
	if err := b.free.Acquire(t.Context(), 1); err != nil {
		t.Fatal("the budget is not free after decoding")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Decode(ctx, data, DefaultLimits); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v while the budget is used, want the context's", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, data := range validFiles() {
		f.Add(data)
	}
	limits := hostileLimits
	limits.Pixels = 1 << 16
	f.Fuzz(func(t *testing.T, data []byte) {
		img, err := Decode(data, limits)
		if err != nil {
			if strings.Contains(err.Error(), "runtime error") {
				t.Fatal(err)
			}
			return
		}
		info, err := Inspect(data, limits)
		if err != nil || img.Width != info.Width || img.Height != info.Height || len(img.Pix) != 3*img.Width*img.Height {
			t.Fatalf("decoded %d x %d pixels; the header says %+v, %v", img.Width, img.Height, info, err)
		}
	})
}
