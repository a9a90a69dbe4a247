package share

import (
	"image"
	"image/color"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"
)

var run = regexp.MustCompile(`M(\d+) (\d+)h(\d+)v1h-(\d+)z`)

// draw draws the path of a code as a browser does, some pixels a module.
func draw(t *testing.T, path string, size int) image.Image {
	t.Helper()
	const scale = 4
	picture := image.NewGray(image.Rect(0, 0, size*scale, size*scale))
	for i := range picture.Pix {
		picture.Pix[i] = 0xff
	}
	for _, part := range run.FindAllStringSubmatch(path, -1) {
		var n [4]int
		for i, text := range part[1:] {
			n[i], _ = strconv.Atoi(text)
		}
		for y := n[1] * scale; y < (n[1]+1)*scale; y++ {
			for x := n[0] * scale; x < (n[0]+n[2])*scale; x++ {
				picture.SetGray(x, y, color.Gray{})
			}
		}
	}
	return picture
}

func TestTheCodeOfALinkIsReadAsTheLink(t *testing.T) {
	for _, link := range []string{
		"http://192.168.1.40:8080/s/q7vd3nxo2lkr8stzb4mhcaq7vd",
		"http://[fd00::2]:8080/s/q7vd3nxo2lkr8stzb4mhcaq7vd",
		"http://[2001:db8:1234:5678:9abc:def0:1234:5678]:65535/s/" + strings.Repeat("q", 26),
	} {
		code, err := QRCode(link)
		if err != nil {
			t.Fatal(err)
		}
		if left := run.ReplaceAllString(code.Path, ""); left != "" {
			t.Fatalf("the path has %q", left)
		}
		bitmap, err := gozxing.NewBinaryBitmapFromImage(draw(t, code.Path, code.Size))
		if err != nil {
			t.Fatal(err)
		}
		read, err := qrcode.NewQRCodeReader().Decode(bitmap, nil)
		if err != nil || read.GetText() != link {
			t.Errorf("%s is read as %v, %v", link, read, err)
		}
	}
	if _, err := QRCode(strings.Repeat("x", 5000)); err == nil {
		t.Error("a code has 5,000 characters")
	}
}
