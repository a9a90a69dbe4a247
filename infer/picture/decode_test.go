package picture

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"testing"
)

// exifOf returns EXIF data with an orientation after another tag.
func exifOf(order binary.AppendByteOrder, orientation uint16) []byte {
	data := []byte("II*\x00")
	if order == binary.BigEndian {
		data = []byte("MM\x00*")
	}
	data = order.AppendUint32(data, 8)
	data = order.AppendUint16(data, 2)
	for _, entry := range [][2]uint16{{0x010f, 7}, {orientationTag, orientation}} {
		data = order.AppendUint16(order.AppendUint16(data, entry[0]), 3)
		data = order.AppendUint32(data, 1)
		data = order.AppendUint16(order.AppendUint16(data, entry[1]), 0)
	}
	return order.AppendUint32(data, 0)
}

// letters draws a picture of grey levels, one for each letter, rows divided by /.
func letters(rows string) *Image {
	lines := bytes.Split([]byte(rows), []byte("/"))
	img := newImage(len(lines[0]), len(lines))
	for y, line := range lines {
		for x, letter := range line {
			for c := range 3 {
				img.Pix[3*(y*img.Width+x)+c] = letter
			}
		}
	}
	return img
}

// drawn returns the letters of a picture.
func drawn(img *Image) (rows string) {
	for i := 0; i < len(img.Pix); i += 3 {
		if i > 0 && i/3%img.Width == 0 {
			rows += "/"
		}
		rows += string(img.Pix[i])
	}
	return rows
}

// orientations say how "abc/def" is seen.
var orientations = []string{"abc/def", "abc/def", "cba/fed", "fed/cba", "def/abc", "ad/be/cf", "da/eb/fc", "fc/eb/da", "cf/be/ad", "abc/def"}

func TestPicturesAreTurnedAsTheirOrientationSays(t *testing.T) {
	for o, want := range orientations {
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			t.Run(fmt.Sprintf("orientation %d %s", o, order), func(t *testing.T) {
				if got := drawn(upright(letters("abc/def"), orientation(exifOf(order, uint16(o))))); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		}
	}
}

func TestEachFormatsOrientationIsRead(t *testing.T) {
	exif := exifOf(binary.BigEndian, 6)
	grey := image.NewGray(image.Rect(0, 0, 3, 2))
	pngFile := encoded(func(b *bytes.Buffer, m image.Image) error { return png.Encode(b, m) }, grey)
	jpegFile := encoded(func(b *bytes.Buffer, m image.Image) error { return jpeg.Encode(b, m, nil) }, grey)
	const afterIHDR = 8 + 25
	segment := binary.BigEndian.AppendUint16([]byte("\xff\xe1"), uint16(8+len(exif)))
	segment = append(append(segment, "Exif\x00\x00"...), exif...)
	webpFile := append(unbase64(lossyWebP), "EXIF"...)
	webpFile = append(binary.LittleEndian.AppendUint32(webpFile, uint32(len(exif))), exif...)
	binary.LittleEndian.PutUint32(webpFile[4:], uint32(len(webpFile)-8))
	for name, data := range map[string][]byte{
		"PNG":  bytes.Join([][]byte{pngFile[:afterIHDR], pngChunk("eXIf", exif), pngFile[afterIHDR:]}, nil),
		"JPEG": bytes.Join([][]byte{jpegFile[:2], segment, jpegFile[2:]}, nil),
		"WebP": webpFile,
	} {
		t.Run(name, func(t *testing.T) {
			info, err := Inspect(data, DefaultLimits)
			if err != nil {
				t.Fatal(err)
			}
			img, err := Decode(data, DefaultLimits)
			if err != nil || info.Width >= info.Height || img.Width != info.Width || img.Height != info.Height {
				t.Errorf("the header says %d x %d, decoded %v, error %v; want a picture that stands", info.Width, info.Height, img, err)
			}
		})
	}
}

func TestAlphaIsDroppedAndSixteenBitsAreCut(t *testing.T) {
	nrgba := image.NewNRGBA(image.Rect(0, 0, 1, 1))
	nrgba.SetNRGBA(0, 0, color.NRGBA{10, 20, 30, 0})
	deep := image.NewNRGBA64(image.Rect(0, 0, 1, 1))
	deep.SetNRGBA64(0, 0, color.NRGBA64{0x0aff, 0x14ff, 0x1eff, 0x0100})
	grey := image.NewGray16(image.Rect(0, 0, 1, 1))
	grey.SetGray16(0, 0, color.Gray16{0x0aff})
	paletted := image.NewPaletted(image.Rect(0, 0, 1, 1), color.Palette{color.NRGBA{10, 20, 30, 7}})
	for _, c := range []struct {
		name string
		img  image.Image
		want [3]byte
	}{
		{"a transparent pixel keeps its colour", nrgba, [3]byte{10, 20, 30}},
		{"16 bits with alpha", deep, [3]byte{10, 20, 30}},
		{"16 bits of grey", grey, [3]byte{10, 10, 10}},
		{"a transparent entry of a palette", paletted, [3]byte{10, 20, 30}},
	} {
		t.Run(c.name, func(t *testing.T) {
			img, err := Decode(encoded(func(b *bytes.Buffer, m image.Image) error { return png.Encode(b, m) }, c.img), DefaultLimits)
			if err != nil || [3]byte(img.Pix) != c.want {
				t.Errorf("got %v, error %v; want %v", img, err, c.want)
			}
		})
	}
}

// TestGIFFramesStandOnTheirScreen decodes frames of 4 x 3 pixels on screens of 6 x 5, with the colours 0, 1, 2, 3 in
// turn, and compares with what Pillow 13 shows.
func TestGIFFramesStandOnTheirScreen(t *testing.T) {
	palette := [4][3]byte{{1, 2, 3}, {40, 50, 60}, {70, 80, 90}, {200, 210, 220}}
	for _, c := range []struct {
		name, file string
		around     int // colour of the rest of the screen
	}{
		{"the screen has the transparent colour, which is shown", "R0lGODlhBgAFAIEAAAECAygyPEZQWsjS3CH5BAEAAAIALAAAAAAEAAMAAAgMAAEEEDBAIEGDAwICADs=", 2},
		{"the screen has the first colour if none is transparent", "R0lGODdhBgAFAIEAAAECAygyPEZQWsjS3CwAAAAABAADAAAIDAABBBAwQCBBgwMCAgA7", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			img, err := Decode(unbase64(c.file), DefaultLimits)
			if err != nil || img.Width != 6 || img.Height != 5 {
				t.Fatalf("got %v, error %v", img, err)
			}
			for i := range 30 {
				want := palette[c.around]
				if x, y := i%6, i/6; x < 4 && y < 3 {
					want = palette[x]
				}
				if got := [3]byte(img.Pix[3*i:]); got != want {
					t.Errorf("pixel %d: got %v, want %v", i, got, want)
				}
			}
		})
	}
}

// TestLossyWebPIsLibwebps compares with what libwebp decodes, which interpolates chroma.
func TestLossyWebPIsLibwebps(t *testing.T) {
	const want = "BAEAFgcAMQ4FSw8DZQwAfw0AmhQGqhgMCh0AHCMFNykQUioVbigXiSkepi4ptTMxDUkAHU8HOlMaVFIqd1Q+klNNrllhwF1uCWwAGXEINnMfUXE2eHZbk3Nyr3iLwXyaGZ4NKqEeRqU8YaFahaF/oJ6cvKG6zqXMIbUWMrkpTbtIaLdol8Kdsr6+z8He3sXw"
	img, err := Decode(unbase64(lossyWebP), DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	if got := base64.StdEncoding.EncodeToString(img.Pix); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTheFirstFrameOfAWebPStandsOnItsCanvas(t *testing.T) {
	still, err := Decode(unbase64(lossyWebP), DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	img, err := Decode(animatedWebP(1, 1), DefaultLimits)
	if err != nil || img.Width != 10 || img.Height != 8 {
		t.Fatalf("got %v, error %v", img, err)
	}
	if frame := crop(img, part{2, 2, 8, 6}); !bytes.Equal(frame.Pix, still.Pix) {
		t.Error("the frame differs from the same picture without animation")
	}
	if rest := crop(img, part{0, 0, 10, 2}); !bytes.Equal(rest.Pix, make([]byte, 60)) {
		t.Error("the canvas around the frame is not black")
	}
}

func FuzzOrientation(f *testing.F) {
	f.Add(exifOf(binary.LittleEndian, 6))
	f.Add(exifOf(binary.BigEndian, 3))
	f.Fuzz(func(t *testing.T, exif []byte) {
		if o := orientation(exif); o < 1 || o > 8 {
			t.Errorf("orientation %d", o)
		}
		for _, of := range []func([]byte) []byte{pngEXIF, jpegEXIF} {
			if got := of(exif); len(got) > len(exif) {
				t.Errorf("%d bytes of EXIF in %d", len(got), len(exif))
			}
		}
		if len(exif) >= 12 {
			webpEXIF(exif)
		}
	})
}
