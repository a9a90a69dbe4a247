package picture

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

func noise(width, height int) *Image {
	rng := rand.New(rand.NewPCG(uint64(width), uint64(height)))
	img := newImage(width, height)
	for i := range img.Pix {
		img.Pix[i] = byte(rng.IntN(256))
	}
	return img
}

func TestAResizedPartIsThatPartOfTheWhole(t *testing.T) {
	for _, f := range []filter{bilinear, bicubic, lanczos} {
		for _, c := range []struct {
			width, height, toWidth, toHeight int
			part                             part
		}{
			{20, 30, 40, 50, part{3, 7, 20, 30}},
			{20, 30, 10, 12, part{0, 1, 9, 11}},
			{20, 30, 20, 12, part{5, 2, 10, 10}},
			{20, 30, 31, 30, part{30, 0, 1, 30}},
			{20, 30, 20, 30, part{1, 2, 3, 4}},
			{20, 30, 25, 12, part{1, 2, 20, 4}}, // down first
		} {
			img := noise(c.width, c.height)
			whole := resize(img, c.toWidth, c.toHeight, f)
			got, want := resizePart(img, c.toWidth, c.toHeight, c.part, f), crop(whole, c.part)
			if !bytes.Equal(got.Pix, want.Pix) || got.Width != c.part.width || got.Height != c.part.height {
				t.Errorf("%+v, support %g: the part differs from the whole", c, f.support)
			}
		}
	}
}

func TestResizingKeepsEvenPicturesAndOriginals(t *testing.T) {
	even := newImage(13, 9)
	for i := range even.Pix {
		even.Pix[i] = 201
	}
	original := bytes.Clone(even.Pix)
	for _, f := range []filter{bilinear, bicubic, lanczos} {
		for _, side := range []int{1, 4, 9, 13, 100} {
			t.Run(fmt.Sprintf("support %g to %d", f.support, side), func(t *testing.T) {
				got := resize(even, side, side, f)
				if len(got.Pix) != 3*side*side || !bytes.Equal(got.Pix, bytes.Repeat([]byte{201}, 3*side*side)) {
					t.Errorf("got %v", got.Pix)
				}
				if !bytes.Equal(even.Pix, original) {
					t.Error("the original has changed")
				}
			})
		}
	}
}
