package share

import (
	"fmt"
	"strings"

	"github.com/boombuler/barcode/qr"
)

// quiet is the width in modules of the empty margin that scanners need around a QR code.
const quiet = 4

// QRPath returns the QR code of text as the path of an SVG of size × size units, one unit per module.
func QRPath(text string) (path string, size int, err error) {
	code, err := qr.Encode(text, qr.M, qr.Auto)
	if err != nil {
		return "", 0, fmt.Errorf("failed to make a QR code of %d bytes: %w", len(text), err)
	}
	bounds := code.Bounds()
	var b strings.Builder
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			begin := x
			for x < bounds.Max.X && isDark(code.At(x, y).RGBA()) {
				x++
			}
			if n := x - begin; n > 0 {
				fmt.Fprintf(&b, "M%d %dh%dv1h-%dz", begin+quiet, y+quiet, n, n)
			}
		}
	}
	return b.String(), bounds.Dx() + 2*quiet, nil
}

func isDark(r, _, _, _ uint32) bool { return r < 0x8000 }
