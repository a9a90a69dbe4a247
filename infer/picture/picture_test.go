package picture

import (
	"encoding/json"
	"os"
	"testing"

	"m40-llm/infer/fixtures"
)

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func readJSON(t testing.TB, path string, into any) {
	t.Helper()
	if err := json.Unmarshal(readFile(t, path), into); err != nil {
		t.Fatal(err)
	}
}

func decoded(t testing.TB, path string) *Image {
	t.Helper()
	img, err := Decode(readFile(t, path), DefaultLimits)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return img
}

// largestDifference returns the largest difference of two lists of 8-bit values of the same length.
func largestDifference(a, b []byte) int {
	largest := 0
	for i := range a {
		largest = max(largest, int(a[i])-int(b[i]), int(b[i])-int(a[i]))
	}
	return largest
}

// decodeCase is an entry of decode/index.json.
type decodeCase struct {
	File, RGB, Upright string
	Shape              [3]int
	UprightShape       [3]int `json:"upright_shape"`
}

// TestDecodedPicturesAreTheReferences compares decoded files with the reference's pixels: exact where the format is
// lossless, and within two levels for JPEG, whose inverse transforms differ between decoders.
func TestDecodedPicturesAreTheReferences(t *testing.T) {
	var index struct{ Pictures []decodeCase }
	readJSON(t, fixtures.Path(t, "images", "decode", "index.json"), &index)
	passed := 0
	for _, c := range index.Pictures {
		t.Run(c.File, func(t *testing.T) {
			img := decoded(t, fixtures.Path(t, "images", "decode", c.File))
			if c.Upright != "" {
				c.RGB, c.Shape = c.Upright, c.UprightShape
			}
			want := readFile(t, fixtures.Path(t, "images", "decode", c.RGB))
			if img.Height != c.Shape[0] || img.Width != c.Shape[1] || len(img.Pix) != len(want) {
				t.Fatalf("got %d x %d, want shape %v", img.Width, img.Height, c.Shape)
			}
			tolerance := 0
			if jpegFormat.is(readFile(t, fixtures.Path(t, "images", "decode", c.File))) {
				tolerance = 2
			}
			d := largestDifference(img.Pix, want)
			t.Logf("largest difference %d", d)
			if d > tolerance {
				t.Fatalf("largest difference %d, want at most %d", d, tolerance)
			}
			passed++
		})
	}
	fixtures.Row(t, "decoded pictures", "images/decode", passed, len(index.Pictures))
}
