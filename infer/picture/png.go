package picture

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/png"
)

var pngFormat = format{
	name:   "PNG",
	is:     begins("\x89PNG\r\n\x1a\n"),
	header: pngHeader,
	decode: func(data []byte) (*Image, error) { return flatten(png.Decode(bytes.NewReader(data))) },
	exif:   pngEXIF,
}

func pngHeader(data []byte) (header, error) {
	c, err := png.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return header{}, err
	}
	bytesPerPixel := 4
	switch c.ColorModel {
	case color.Gray16Model, color.RGBA64Model, color.NRGBA64Model:
		bytesPerPixel = 8
	}
	if len(data) > 28 && data[28] != 0 { // interlaced: the largest pass is half of the picture
		bytesPerPixel += bytesPerPixel / 2
	}
	return sized(c, bytesPerPixel), nil
}

// pngEXIF returns the data of the eXIf chunk.
func pngEXIF(data []byte) []byte {
	for at := 8; at+8 <= len(data); {
		n := int(binary.BigEndian.Uint32(data[at:]))
		if n > len(data)-at-8 {
			return nil
		}
		if string(data[at+4:at+8]) == "eXIf" {
			return data[at+8 : at+8+n]
		}
		at += 12 + n
	}
	return nil
}

// flatten copies the colours of a decoded picture, without alpha. Of 16 bits it takes the upper 8, also of grey ones,
// of which published preprocessors make a white picture.
func flatten(src image.Image, err error) (*Image, error) {
	if err != nil {
		return nil, err
	}
	dst := newImage(src.Bounds().Dx(), src.Bounds().Dy())
	switch s := src.(type) {
	case *image.Gray:
		dst.copySamples(s.Pix, s.Stride, 1, 0)
	case *image.Gray16:
		dst.copySamples(s.Pix, s.Stride, 2, 0)
	case *image.RGBA: // of opaque pictures alone: not multiplied by anything
		dst.copySamples(s.Pix, s.Stride, 4, 1)
	case *image.NRGBA:
		dst.copySamples(s.Pix, s.Stride, 4, 1)
	case *image.RGBA64:
		dst.copySamples(s.Pix, s.Stride, 8, 2)
	case *image.NRGBA64:
		dst.copySamples(s.Pix, s.Stride, 8, 2)
	case *image.Paletted:
		dst.copyPaletted(s.Pix, s.Stride, colours(s.Palette))
	default:
		return nil, unexpectedColours(src)
	}
	return dst, nil
}

// copySamples copies pixels of step bytes whose red, green and blue are sample bytes apart.
func (m *Image) copySamples(pix []byte, stride, step, sample int) {
	to := 0
	for y := range m.Height {
		row := pix[y*stride:]
		for x := range m.Width {
			m.Pix[to], m.Pix[to+1], m.Pix[to+2] = row[x*step], row[x*step+sample], row[x*step+2*sample]
			to += 3
		}
	}
}

// copyPaletted copies pixels that are indices into a table of colours.
func (m *Image) copyPaletted(pix []byte, stride int, table *[256][3]byte) {
	for y := range m.Height {
		for x := range m.Width {
			copy(m.Pix[3*(y*m.Width+x):], table[pix[y*stride+x]][:])
		}
	}
}

// colours returns the entries of a palette without their alpha.
func colours(p color.Palette) *[256][3]byte {
	var table [256][3]byte
	for i, c := range p[:min(len(p), 256)] {
		n := color.NRGBAModel.Convert(c).(color.NRGBA)
		if given, ok := c.(color.NRGBA); ok {
			n = given
		}
		table[i] = [3]byte{n.R, n.G, n.B}
	}
	return &table
}
