package share

import (
	"fmt"
	"image"
	"image/color"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"m40-llm/infer/fixtures"

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

// randomLink returns a link as a server in some network has it: at an IPv4 or IPv6 address or a name.
func randomLink(random *rand.Rand) string {
	letters := func(n int) string {
		text := make([]byte, n)
		for i := range text {
			text[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[random.IntN(36)]
		}
		return string(text)
	}
	var host string
	switch random.IntN(4) {
	case 0:
		host = netip.AddrFrom4([4]byte{byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32())}).String()
	case 1, 2:
		var ip [16]byte
		for i := range ip {
			if ip[i] = byte(random.Uint32()); random.IntN(3) == 0 { // so that some are written shorter
				ip[i] = 0
			}
		}
		host = "[" + netip.AddrFrom16(ip).String() + "]"
	default:
		host = letters(1+random.IntN(63)) + ".local"
	}
	scheme := []string{"http", "https"}[random.IntN(2)]
	end := []string{"/s/" + letters(26), "/login?link=" + strings.ToUpper(letters(26))}[random.IntN(2)]
	return fmt.Sprintf("%s://%s:%d%s", scheme, host, 1+random.IntN(65535), end)
}

// Another library reads each code as the link that it is of. It is told that the picture is of a code alone: its search
// for a code in a photograph places the corners of one in a hundred large codes outside of the picture.
func TestTheCodeOfALinkIsReadAsTheLink(t *testing.T) {
	links := []string{
		"http://192.168.1.40:8080/s/q7vd3nxo2lkr8stzb4mhcaq7vd",
		"http://[fd00::2]:8080/s/q7vd3nxo2lkr8stzb4mhcaq7vd",
		"http://[2001:db8:1234:5678:9abc:def0:1234:5678]:65535/s/" + strings.Repeat("q", 26),
	}
	alone := map[gozxing.DecodeHintType]any{gozxing.DecodeHintType_PURE_BARCODE: true}
	seed := uint64(1)
	if fixtures.Torture() {
		seed = rand.Uint64()
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for len(links) < 100 {
		links = append(links, randomLink(random))
	}
	shortest, longest := links[0], links[0]
	for _, link := range links {
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
		read, err := qrcode.NewQRCodeReader().Decode(bitmap, alone)
		if err != nil || read.GetText() != link {
			t.Errorf("seed %d: %s is read as %v, %v", seed, link, read, err)
		}
		if len(link) < len(shortest) {
			shortest = link
		}
		if len(link) > len(longest) {
			longest = link
		}
	}
	t.Logf("%d codes, of links of %d to %d characters", len(links), len(shortest), len(longest))
	if _, err := QRCode(strings.Repeat("x", 5000)); err == nil {
		t.Error("a code has 5,000 characters")
	}
}
