package picture

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"slices"
	"testing"
)

const secret = "48.8584 N, 2.2945 E, by Ada"

// cameraEXIF returns EXIF data with an orientation and a secret.
func cameraEXIF(o byte) []byte {
	data := []byte("MM\x00*\x00\x00\x00\x08\x00\x02")
	data = append(data, 0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, o, 0, 0)
	data = append(data, 0x01, 0x3b, 0, 2, 0, 0, 0, byte(len(secret)), 0, 0, 0, 38)
	return append(append(data, 0, 0, 0, 0), secret...)
}

func speckles() image.Image {
	rng := rand.New(rand.NewPCG(1, 2))
	m := image.NewRGBA(image.Rect(0, 0, 21, 13))
	for i := range m.Pix {
		m.Pix[i] = byte(rng.Uint32())
	}
	m.Set(0, 0, color.White)
	return m
}

func jpegWith(t testing.TB, segments ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, speckles(), nil); err != nil {
		t.Fatal(err)
	}
	data := b.Bytes()
	return slices.Concat(data[:2], slices.Concat(segments...), data[2:])
}

func segment(marker byte, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0xff, marker}, uint16(len(payload)+2)), payload...)
}

func pngWith(t testing.TB, chunks ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, speckles()); err != nil {
		t.Fatal(err)
	}
	data := b.Bytes()
	return slices.Concat(data[:33], slices.Concat(chunks...), data[33:]) // after the header
}

func chunk(name string, payload []byte) []byte {
	out := append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), name...)
	out = append(out, payload...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[4:]))
}

func pixelsOf(t testing.TB, data []byte) *Image {
	t.Helper()
	m, err := Decode(data, DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestFilesLoseTheirMetadataAndLookTheSame(t *testing.T) {
	exif := func(o byte) []byte { return append([]byte(exifName), cameraEXIF(o)...) }
	for name, data := range map[string][]byte{
		"a JPEG with EXIF":              jpegWith(t, segment(0xe1, exif(1))),
		"a JPEG that is turned by EXIF": jpegWith(t, segment(0xe1, exif(6))),
		"a JPEG with XMP and IPTC":      jpegWith(t, segment(0xe1, []byte("http://ns.adobe.com/xap/1.0/\x00"+secret)), segment(0xed, []byte("Photoshop 3.0\x00"+secret))),
		"a JPEG with a comment":         jpegWith(t, segment(0xfe, []byte(secret))),
		"a JPEG with a film behind it":  append(jpegWith(t), secret...),
		"a PNG with EXIF":               pngWith(t, chunk("eXIf", cameraEXIF(1))),
		"a PNG that is turned by EXIF":  pngWith(t, chunk("eXIf", cameraEXIF(3))),
		"a PNG with texts":              pngWith(t, chunk("tEXt", []byte("Author\x00"+secret)), chunk("iTXt", []byte("x\x00\x00\x00\x00\x00"+secret))),
		"a PNG with data behind it":     append(pngWith(t), secret...),
	} {
		before := slices.Clone(data)
		if !bytes.Contains(data, []byte(secret)) {
			t.Fatalf("%s: the secret is not in the file", name)
		}
		clean := WithoutMetadata(data)
		if bytes.Contains(clean, []byte(secret)) {
			t.Errorf("%s: the secret is still there", name)
		}
		if want, got := pixelsOf(t, data), pixelsOf(t, clean); want.Width != got.Width || want.Height != got.Height || !bytes.Equal(want.Pix, got.Pix) {
			t.Errorf("%s: the picture looks different", name)
		}
		if !bytes.Equal(data, before) {
			t.Errorf("%s: the data that were given are changed", name)
		}
		if again := WithoutMetadata(clean); !bytes.Equal(again, clean) {
			t.Errorf("%s: the second time something else is removed", name)
		}
	}
}

func FuzzWithoutMetadata(f *testing.F) {
	f.Add(jpegWith(f, segment(0xe1, append([]byte(exifName), cameraEXIF(5)...))))
	f.Add(pngWith(f, chunk("eXIf", cameraEXIF(8)), chunk("tEXt", []byte("x\x00y"))))
	f.Add([]byte("RIFF\x24\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00EXIF\x04\x00\x00\x00II*\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		limits := Limits{Bytes: 1 << 20, Side: 1 << 10, Pixels: 1 << 16, Memory: 1 << 26}
		want, err := Decode(data, limits)
		clean := WithoutMetadata(data)
		if err != nil {
			return
		}
		got, err := Decode(clean, limits)
		if err != nil || got.Width != want.Width || got.Height != want.Height || !bytes.Equal(got.Pix, want.Pix) {
			t.Errorf("the picture looks different, %v", err)
		}
	})
}
