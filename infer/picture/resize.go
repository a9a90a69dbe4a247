package picture

import "math"

// filter is a resampling kernel: its weight at a distance, which is 0 from support on.
type filter struct {
	support float64 // in pixels of the larger picture
	weight  func(x float64) float64
}

var (
	bilinear = filter{1, func(x float64) float64 { return max(0, 1-math.Abs(x)) }}
	bicubic  = filter{2, cubic}
	lanczos  = filter{3, func(x float64) float64 {
		if x < -3 || x >= 3 {
			return 0
		}
		return sinc(x) * sinc(x/3)
	}}
)

// cubic is the cubic convolution with a = -0.5.
func cubic(x float64) float64 {
	const a = -0.5
	x = math.Abs(x)
	switch {
	case x < 1:
		return float64(float64(float64(float64((a+2)*x)-(a+3))*x)*x) + 1
	case x < 2:
		return float64(float64(float64((x-5)*x)+8)*x-4) * a
	}
	return 0
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	x *= math.Pi
	return math.Sin(x) / x
}

// weightBits are the fractional bits of a weight.
const weightBits = 32 - 8 - 2

// taps are the source pixels that make one pixel, and their weights as integers.
type taps struct {
	first   int
	weights []int32
}

// taps returns what count pixels from start on are made of, of to pixels that from pixels are scaled to. When shrinking the kernel is widened by the scale, so that
// each source pixel counts. Sums are rounded as written here on every processor: none is fused.
func (f filter) taps(from, to, start, count int) []taps {
	scale := float64(from) / float64(to)
	widened := max(scale, 1)
	support := f.support * widened
	list := make([]taps, count)
	var weights []float64
	for i := range list {
		centre := (float64(start+i) + 0.5) * scale
		first := max(0, int(centre-support+0.5))
		end := min(from, int(centre+support+0.5))
		weights = weights[:0]
		sum := 0.0
		for x := first; x < end; x++ {
			w := f.weight((float64(x) - centre + 0.5) * (1 / widened))
			weights = append(weights, w)
			sum += w
		}
		list[i] = taps{first: first, weights: make([]int32, len(weights))}
		for k, w := range weights {
			if sum != 0 {
				w /= sum
			}
			list[i].weights[k] = int32(math.Round(float64(w * (1 << weightBits))))
		}
	}
	return list
}

func round8(sum int64) byte { return clip8(int(sum >> weightBits)) }

const halfWeight = 1 << (weightBits - 1)

// part is a rectangle of a picture, in pixels.
type part struct{ left, top, width, height int }

// resize scales a picture to width x height. It returns src itself if the size is the same.
func resize(src *Image, width, height int, f filter) *Image {
	return resizePart(src, width, height, part{0, 0, width, height}, f)
}

// resizePart returns a part of a picture scaled to width x height, and computes no more than that: one direction after
// the other, each pass rounded to 8 bits. A side that keeps its length is not filtered.
func resizePart(src *Image, width, height int, p part, f filter) *Image {
	across := func() {
		if src.Width != width {
			src = resizeAcross(src, f.taps(src.Width, width, p.left, p.width))
			p.left = 0
		}
	}
	down := func() {
		if src.Height != height {
			src = resizeDown(src, f.taps(src.Height, height, p.top, p.height))
			p.top = 0
		}
	}
	if downFirst(src, width, height) {
		down()
		across()
	} else {
		across()
		down()
	}
	return crop(src, p)
}

// downFirst reports whether columns are filtered before rows. Because of the rounding between them the order shows:
// this is Pillow 13's; those before it always begin with rows.
func downFirst(src *Image, width, height int) bool {
	return height < src.Height && 2*(src.Width-width) < src.Height-height
}

func resizeAcross(src *Image, list []taps) *Image {
	dst := newImage(len(list), src.Height)
	to := 0
	for y := range src.Height {
		row := src.Pix[3*y*src.Width:][:3*src.Width]
		for _, t := range list {
			r, g, b := int64(halfWeight), int64(halfWeight), int64(halfWeight)
			pixels := row[3*t.first:][:3*len(t.weights)]
			for k, w := range t.weights {
				w := int64(w)
				p := pixels[3*k : 3*k+3]
				r += w * int64(p[0])
				g += w * int64(p[1])
				b += w * int64(p[2])
			}
			dst.Pix[to], dst.Pix[to+1], dst.Pix[to+2] = round8(r), round8(g), round8(b)
			to += 3
		}
	}
	return dst
}

func resizeDown(src *Image, list []taps) *Image {
	dst := newImage(src.Width, len(list))
	stride := 3 * src.Width
	sums := make([]int64, stride)
	for y, t := range list {
		for x := range sums {
			sums[x] = halfWeight
		}
		for k, w := range t.weights {
			row := src.Pix[(t.first+k)*stride:][:stride]
			for x, v := range row {
				sums[x] += int64(w) * int64(v)
			}
		}
		out := dst.Pix[y*stride:][:stride]
		for x, s := range sums {
			out[x] = round8(s)
		}
	}
	return dst
}

// crop returns a part of a picture: a copy, or src itself if that is all of it.
func crop(src *Image, p part) *Image {
	if p == (part{0, 0, src.Width, src.Height}) {
		return src
	}
	dst := newImage(p.width, p.height)
	for y := range p.height {
		copy(dst.Pix[3*y*p.width:][:3*p.width], src.Pix[3*((p.top+y)*src.Width+p.left):])
	}
	return dst
}
