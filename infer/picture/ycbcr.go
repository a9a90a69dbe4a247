package picture

import "image"

// toRGB converts a pixel of luma and two chroma values.
type toRGB func(y, cb, cr int) (r, g, b byte)

func clip8(v int) byte { return byte(max(0, min(255, v))) }

// jfif converts a pixel of a JPEG, with the 16 fractional bits and the roundings of libjpeg.
func jfif(y, cb, cr int) (r, g, b byte) {
	cb, cr = cb-128, cr-128
	const half = 1 << 15
	return clip8(y + (91881*cr+half)>>16),
		clip8(y + (-22554*cb-46802*cr+half)>>16),
		clip8(y + (116130*cb+half)>>16)
}

// studio converts a pixel of a WebP, whose luma goes from 16 to 235, with the roundings of libwebp.
func studio(y, cb, cr int) (r, g, b byte) {
	y = y * 19077 >> 8
	return clip8((y + cr*26149>>8 - 14234) >> 6),
		clip8((y - cb*6419>>8 - cr*13320>>8 + 8708) >> 6),
		clip8((y + cb*33050>>8 - 17685) >> 6)
}

// fromYCbCr converts a picture whose chroma may have fewer samples than its luma.
func fromYCbCr(s *image.YCbCr, convert toRGB, interpolate func(c *chroma, plane []byte, y int, into []byte)) *Image {
	dst := newImage(s.Rect.Dx(), s.Rect.Dy())
	c := newChroma(s)
	cb, cr := make([]byte, c.width*c.across), make([]byte, c.width*c.across)
	to := 0
	for y := range dst.Height {
		interpolate(c, s.Cb, y, cb)
		interpolate(c, s.Cr, y, cr)
		for x, l := range s.Y[y*s.YStride:][:dst.Width] {
			dst.Pix[to], dst.Pix[to+1], dst.Pix[to+2] = convert(int(l), int(cb[x]), int(cr[x]))
			to += 3
		}
	}
	return dst
}

// chroma is the layout of the chroma planes.
type chroma struct {
	stride, width, height int // in samples
	across, down          int // pixels of a sample
	column                []int
}

func newChroma(s *image.YCbCr) *chroma {
	c := &chroma{stride: s.CStride, across: 1, down: 1}
	switch s.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		c.across = 2
	case image.YCbCrSubsampleRatio420:
		c.across, c.down = 2, 2
	case image.YCbCrSubsampleRatio440:
		c.down = 2
	case image.YCbCrSubsampleRatio411:
		c.across = 4
	case image.YCbCrSubsampleRatio410:
		c.across, c.down = 4, 2
	}
	c.width = (s.Rect.Dx() + c.across - 1) / c.across
	c.height = (s.Rect.Dy() + c.down - 1) / c.down
	c.column = make([]int, c.width)
	return c
}

// rows returns the row of samples that is nearest to row y of pixels, and the second nearest where a sample has two
// rows of pixels.
func (c *chroma) rows(plane []byte, y int) (near, far []byte) {
	other := y/2 - 1 + y&1*2
	other = max(0, min(c.height-1, other))
	return plane[y/c.down*c.stride:][:c.width], plane[other*c.stride:][:c.width]
}

// jpegChroma writes a row of chroma at the width of the luma, interpolated as libjpeg does by default.
func jpegChroma(c *chroma, plane []byte, y int, into []byte) {
	near, far := c.rows(plane, y)
	switch {
	case c.across == 1 && c.down == 1:
		copy(into, near)
	case c.across == 1: // 4:4:0
		for x := range near {
			into[x] = byte((3*int(near[x]) + int(far[x]) + 1 + y&1) >> 2)
		}
	case c.across == 2 && c.width > 2 && c.down == 1: // 4:2:2
		for x := range near {
			c.column[x] = 4 * int(near[x])
		}
		c.spread(into, 4, 8)
	case c.across == 2 && c.width > 2: // 4:2:0
		for x := range near {
			c.column[x] = 3*int(near[x]) + int(far[x])
		}
		c.spread(into, 8, 7)
	default: // samples are repeated
		for x := range into {
			into[x] = near[x/c.across]
		}
	}
}

// spread writes two pixels for each sample of c.column, which are in quarters: three parts of it and one of the
// neighbour. Left and right are rounded differently, so that the mean does not move.
func (c *chroma) spread(into []byte, left, right int) {
	last := c.width - 1
	for x, v := range c.column {
		into[2*x] = byte((3*v + c.column[max(x-1, 0)] + left) >> 4)
		into[2*x+1] = byte((3*v + c.column[min(x+1, last)] + right) >> 4)
	}
}

// webpChroma writes a row of chroma at the width of the luma, interpolated as libwebp does by default: 9, 3, 3 and 1
// sixteenths of the four nearest samples, rounded twice. WebP has 4:2:0 alone.
func webpChroma(c *chroma, plane []byte, y int, into []byte) {
	near, far := c.rows(plane, y)
	for x := range into {
		i := x / 2
		j := max(0, min(c.width-1, i-1+x&1*2))
		own, side, above, diagonal := int(near[i]), int(near[j]), int(far[i]), int(far[j])
		into[x] = byte((own + (own+diagonal+3*(side+above)+8)>>3) >> 1)
	}
}
