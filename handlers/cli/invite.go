package cli

import (
	"fmt"
	"image"
	"io"
	"strings"
	"time"

	"github.com/boombuler/barcode/qr"
)

// Invite prints how a device of the owner of the server is let in: by typing code at one of urls, or
// by scanning the address that begins with the first of them and ends with link.
func Invite(w io.Writer, urls []string, code, link string, life time.Duration) error {
	if len(urls) == 0 {
		return nil
	}
	fmt.Fprintf(w, "m40-llm: to log a device in as the owner, open %s there and type the code %s, or scan this within %d minutes:\n", urls[0], code, int(life.Minutes()))
	picture, err := qr.Encode(urls[0]+"/login?link="+link, qr.L, qr.Auto)
	if err != nil {
		return fmt.Errorf("failed to make a QR code: %w", err)
	}
	_, err = io.WriteString(w, blocks(picture))
	return err
}

// quiet is the width of the margin that scanners need around a code, in modules.
const quiet = 2

// blocks returns a QR code as text, with two modules in each character: light ones are drawn, as
// most terminals are dark.
func blocks(code image.Image) string {
	size := code.Bounds().Dx()
	light := func(x, y int) bool {
		if x < 0 || y < 0 || x >= size || y >= size {
			return true
		}
		r, _, _, _ := code.At(x, y).RGBA()
		return r >= 0x8000
	}
	var b strings.Builder
	for y := -quiet; y < size+quiet; y += 2 {
		for x := -quiet; x < size+quiet; x++ {
			below := light(x, y+1) && y+1 < size+quiet
			switch {
			case light(x, y) && below:
				b.WriteRune('█')
			case light(x, y):
				b.WriteRune('▀')
			case below:
				b.WriteRune('▄')
			default:
				b.WriteByte(' ')
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
