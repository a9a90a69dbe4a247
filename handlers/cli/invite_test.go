package cli

import (
	"image"
	"image/color"
	"strings"
	"testing"
	"time"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"
)

// A scanner reads from the terminal what is printed as text.
func TestInvite_TheCodeInTheTerminalLeadsToTheLogin(t *testing.T) {
	var out strings.Builder
	if err := Invite(&out, []string{"http://192.168.1.5:8080", "http://10.0.0.5:8080"}, "4F7K-09XM", "SECRET", 5*time.Minute); err != nil {
		t.Fatal(err)
	}
	first, drawn, _ := strings.Cut(out.String(), "\n")
	if !strings.Contains(first, "http://192.168.1.5:8080 ") || !strings.Contains(first, "4F7K-09XM") || !strings.Contains(first, "5 minutes") {
		t.Errorf("the line is %q", first)
	}
	const scale = 4
	lines := strings.Split(strings.TrimSuffix(drawn, "\n"), "\n")
	picture := image.NewGray(image.Rect(0, 0, scale*len([]rune(lines[0])), scale*2*len(lines)))
	for y, line := range lines {
		for x, r := range []rune(line) {
			for half, light := range []bool{r == '█' || r == '▀', r == '█' || r == '▄'} {
				for i := range scale * scale {
					if light {
						picture.SetGray(scale*x+i%scale, scale*(2*y+half)+i/scale, color.Gray{Y: 255})
					}
				}
			}
		}
	}
	bitmap, err := gozxing.NewBinaryBitmapFromImage(picture)
	if err != nil {
		t.Fatal(err)
	}
	read, err := qrcode.NewQRCodeReader().Decode(bitmap, nil)
	if err != nil || read.GetText() != "http://192.168.1.5:8080/login?link=SECRET" {
		t.Errorf("scanned %v (%v)", read, err)
	}
}
