package picture

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/jpeg"
)

// maxScanPixels bounds the time of a JPEG: each scan of a progressive file visits the whole picture, at the price of
// a few bytes. Programs write about ten scans.
const maxScanPixels = 1_000_000_000

var jpegFormat = format{
	name:   "JPEG",
	is:     begins("\xff\xd8\xff"),
	header: jpegHeader,
	decode: decodeJPEG,
	exif:   jpegEXIF,
}

func jpegHeader(data []byte) (header, error) {
	c, err := jpeg.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return header{}, err
	}
	// The bytes of a marker may also occur in metadata, so both are upper bounds.
	scans, progressive := bytes.Count(data, []byte("\xff\xda")), bytes.Contains(data, []byte("\xff\xc2"))
	if scans > 4 && c.Width*c.Height > maxScanPixels/scans {
		return header{}, fmt.Errorf("%d scans of %d x %d pixels are too many", scans, c.Width, c.Height)
	}
	bytesPerPixel := 8 // four components, and their copy as one picture
	if progressive {
		bytesPerPixel += 4 * 4
	}
	h := sized(c, bytesPerPixel)
	h.memory += 2 * 32 * 4 * (c.Width + c.Height) // planes are multiples of at most 32 pixels
	return h, nil
}

func decodeJPEG(data []byte) (*Image, error) {
	src, err := jpeg.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	switch s := src.(type) {
	case *image.YCbCr:
		return fromYCbCr(s, jfif, jpegChroma), nil
	case *image.CMYK:
		return fromCMYK(s), nil
	}
	return flatten(src, nil)
}

// jpegEXIF returns the EXIF data of the APP1 segment.
func jpegEXIF(data []byte) []byte {
	for at := 2; at+4 <= len(data) && data[at] == 0xff; {
		marker, n := data[at+1], int(binary.BigEndian.Uint16(data[at+2:]))
		if marker == 0xff { // padding
			at++
			continue
		}
		if marker == 0xda || n < 2 || n > len(data)-at-2 {
			return nil
		}
		if exif, ok := bytes.CutPrefix(data[at+4:at+2+n], []byte("Exif\x00\x00")); ok && marker == 0xe1 {
			return exif
		}
		at += 2 + n
	}
	return nil
}

// fromCMYK mixes the inks without a colour profile, as published preprocessors do.
func fromCMYK(s *image.CMYK) *Image {
	dst := newImage(s.Rect.Dx(), s.Rect.Dy())
	to := 0
	for y := range dst.Height {
		row := s.Pix[y*s.Stride:]
		for x := range dst.Width {
			white := 255 - int(row[4*x+3])
			for c := range 3 {
				ink := int(row[4*x+c])*white + 128
				dst.Pix[to+c] = byte(max(0, white-(ink>>8+ink)>>8))
			}
			to += 3
		}
	}
	return dst
}

func unexpectedColours(src image.Image) error { return fmt.Errorf("unexpected colours %T", src) }
