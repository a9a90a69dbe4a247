// Package picture turns the bytes of a picture file into the numbers that a vision tower reads: it decodes
// (Decode), and resizes, cuts and normalises as the published model does (Preprocessor).
//
// Files are untrusted. Every limit is checked against the header before pixels are decoded. Packages that compute
// import this one; it knows no engine and no device.
package picture

import (
	"fmt"

	"m40-llm/infer/units"
)

// Image is a decoded picture: 8-bit RGB without alpha, rows from the top, three bytes a pixel, no padding.
type Image struct {
	Width, Height int
	Pix           []byte // [Height][Width][3]
}

func newImage(width, height int) *Image {
	return &Image{Width: width, Height: height, Pix: make([]byte, 3*width*height)}
}

// Limits bound what a file may be. Each is checked before pixels are decoded.
type Limits struct {
	Bytes  int // of the file
	Side   int // pixels of the longer side
	Pixels int // width times height
	Memory int // bytes that decoding needs at most, the Image included
}

// DefaultLimits accept what phones and cameras take: 50 million pixels, and up to 32 MiB.
var DefaultLimits = Limits{Bytes: 32 << 20, Side: 16384, Pixels: 50_000_000, Memory: 1 << 30}

// Info is what the header of a file says, as the file would be decoded.
type Info struct {
	Format        string // PNG, JPEG, GIF, WebP or BMP
	Width, Height int    // pixels, after the EXIF orientation
	Memory        int    // bytes that decoding needs at most, the Image included

	orientation int // the EXIF orientation, 1 to 8
}

// Inspect reads the header of a file and checks it against limits, without decoding pixels. Its errors are
// Decode's.
func Inspect(data []byte, limits Limits) (Info, error) {
	if len(data) > limits.Bytes {
		return Info{}, fmt.Errorf("the picture file has %s, more than the limit of %s; send a smaller one", units.ByteSize(int64(len(data))), units.ByteSize(int64(limits.Bytes)))
	}
	f, err := formatOf(data)
	if err != nil {
		return Info{}, err
	}
	return inspect(f, data, limits)
}

func inspect(f *format, data []byte, limits Limits) (Info, error) {
	h, err := f.header(data)
	if err != nil {
		return Info{}, damaged(f, err)
	}
	if err := limits.check(h); err != nil {
		return Info{}, err
	}
	info := Info{Format: f.name, Width: h.width, Height: h.height, Memory: h.memory, orientation: orientation(f.exif(data))}
	if info.orientation > 1 {
		info.Memory += 3 * h.width * h.height
	}
	if info.orientation >= 5 {
		info.Width, info.Height = h.height, h.width
	}
	return info, limits.checkMemory(info)
}

// Decode decodes a picture: PNG, JPEG, WebP, GIF or BMP, of an animation the first frame, turned as its EXIF orientation
// says. Alpha is dropped, not blended, as the published preprocessors do. An error says in words what is wrong with
// the file and what to do.
func Decode(data []byte, limits Limits) (img *Image, err error) {
	info, err := Inspect(data, limits)
	if err != nil {
		return nil, err
	}
	f, err := formatOf(data)
	if err != nil {
		return nil, err
	}
	// A file that makes a decoder panic must not end the process of others.
	defer func() {
		if r := recover(); r != nil {
			img, err = nil, damaged(f, fmt.Errorf("%v", r))
		}
	}()
	img, err = f.decode(data)
	if err != nil {
		return nil, damaged(f, err)
	}
	return upright(img, info.orientation), nil
}

func damaged(f *format, err error) error {
	return fmt.Errorf("the %s file is damaged or of an unusual kind: %w; open it in an image program and save it as PNG or JPEG", f.name, err)
}

// check returns an error if the size in a header is outside the limits.
func (l Limits) check(h header) error {
	if h.width < 1 || h.height < 1 {
		return fmt.Errorf("the picture has %d x %d pixels; send one with at least one pixel", h.width, h.height)
	}
	if max(h.width, h.height) > l.Side {
		return fmt.Errorf("the picture has %d x %d pixels, and a side may have at most %d; cut or shrink it", h.width, h.height, l.Side)
	}
	if h.width > l.Pixels/h.height {
		return fmt.Errorf("the picture has %d x %d pixels, more than the limit of %s pixels; shrink it", h.width, h.height, units.Quantity(int64(l.Pixels)))
	}
	return nil
}

func (l Limits) checkMemory(i Info) error {
	if i.Memory > l.Memory {
		return fmt.Errorf("decoding this %s file of %d x %d pixels needs up to %s, more than the limit of %s; shrink it, or save it as a plain JPEG, not a progressive one",
			i.Format, i.Width, i.Height, units.ByteSize(int64(i.Memory)), units.ByteSize(int64(l.Memory)))
	}
	return nil
}
