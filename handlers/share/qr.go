package share

import (
	"fmt"
	"strings"

	"github.com/boombuler/barcode/qr"

	"m40-llm/web"
)

// quiet is the width in modules of the empty margin that scanners need around a QR code.
const quiet = 4

// QRCode returns the QR code of text, with one unit per module.
func QRCode(text string) (web.QRCode, error) {
	code, err := qr.Encode(text, qr.M, qr.Auto)
	if err != nil {
		return web.QRCode{}, fmt.Errorf("failed to make a QR code of %d bytes: %w", len(text), err)
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
	return web.QRCode{Path: b.String(), Size: bounds.Dx() + 2*quiet}, nil
}

func isDark(r, _, _, _ uint32) bool { return r < 0x8000 }
