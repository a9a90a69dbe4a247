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

// fromYCbCr converts a picture whose chroma may have fewer samples than its luma. The samples between are
// interpolated as libjpeg does by default.
func fromYCbCr(s *image.YCbCr, convert toRGB) *Image {
	dst := newImage(s.Rect.Dx(), s.Rect.Dy())
	up := newUpsampler(s)
	to := 0
	for y := range dst.Height {
		luma := s.Y[y*s.YStride:][:dst.Width]
		cb, cr := up.row(s.Cb, y, up.cb), up.row(s.Cr, y, up.cr)
		for x, l := range luma {
			dst.Pix[to], dst.Pix[to+1], dst.Pix[to+2] = convert(int(l), int(cb[x]), int(cr[x]))
			to += 3
		}
	}
	return dst
}

// upsampler brings rows of chroma to the width and height of the luma.
type upsampler struct {
	stride, width, height int // of the chroma planes, in samples
	across, down          int // pixels per sample
	column                []int
	cb, cr                []byte // the current rows
}

func newUpsampler(s *image.YCbCr) *upsampler {
	u := &upsampler{stride: s.CStride, across: 1, down: 1}
	switch s.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		u.across = 2
	case image.YCbCrSubsampleRatio420:
		u.across, u.down = 2, 2
	case image.YCbCrSubsampleRatio440:
		u.down = 2
	case image.YCbCrSubsampleRatio411:
		u.across = 4
	case image.YCbCrSubsampleRatio410:
		u.across, u.down = 4, 2
	}
	u.width = (s.Rect.Dx() + u.across - 1) / u.across
	u.height = (s.Rect.Dy() + u.down - 1) / u.down
	u.column = make([]int, u.width)
	u.cb, u.cr = make([]byte, u.width*u.across), make([]byte, u.width*u.across)
	return u
}

// row writes row y of a plane to into, at full width, and returns it.
func (u *upsampler) row(plane []byte, y int, into []byte) []byte {
	near := plane[y/u.down*u.stride:][:u.width]
	switch {
	case u.across == 1 && u.down == 1:
		copy(into, near)
	case u.across == 1: // 4:4:0
		far := plane[u.otherRow(y)*u.stride:][:u.width]
		for x := range near {
			into[x] = byte((3*int(near[x]) + int(far[x]) + 1 + y&1) >> 2)
		}
	case u.across == 2 && u.width > 2 && u.down == 1: // 4:2:2
		for x := range near {
			u.column[x] = 4 * int(near[x])
		}
		u.spread(into, 4, 8)
	case u.across == 2 && u.width > 2: // 4:2:0
		far := plane[u.otherRow(y)*u.stride:][:u.width]
		for x := range near {
			u.column[x] = 3*int(near[x]) + int(far[x])
		}
		u.spread(into, 8, 7)
	default: // samples are repeated
		for x := range into {
			into[x] = near[x/u.across]
		}
	}
	return into
}

// otherRow returns the row of chroma samples that is second nearest to a row of pixels.
func (u *upsampler) otherRow(y int) int {
	if y&1 == 0 {
		return max(y/2-1, 0)
	}
	return min(y/2+1, u.height-1)
}

// spread writes two pixels for each sample of u.column, which are in quarters: three parts of it and one of the
// neighbour. Left and right are rounded differently, so that the mean does not move.
func (u *upsampler) spread(into []byte, left, right int) {
	last := u.width - 1
	for x, v := range u.column {
		into[2*x] = byte((3*v + u.column[max(x-1, 0)] + left) >> 4)
		into[2*x+1] = byte((3*v + u.column[min(x+1, last)] + right) >> 4)
	}
}
