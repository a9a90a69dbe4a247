package picture

import (
	"bytes"
	"errors"
	"fmt"
	"image"
)

// format is a kind of file that Decode reads.
type format struct {
	name   string
	is     func(data []byte) bool
	header func(data []byte) (header, error)
	decode func(data []byte) (*Image, error) // the header is within the limits
	exif   func(data []byte) []byte          // the EXIF data, a TIFF file without pixels; nil if there are none
}

// header is what decoding costs, known before it starts.
type header struct {
	width, height int // pixels, as stored
	memory        int // bytes that decode needs at most, its result included
}

// fixedMemory is what decoders need whatever the size: windows of decompression, tables, and the rows by which a
// narrow picture is larger in blocks.
const fixedMemory = 2 << 20

// sized returns the header of a picture whose decoder needs some bytes per pixel besides the Image.
func sized(c image.Config, bytesPerPixel int) header {
	return header{width: c.Width, height: c.Height, memory: fixedMemory + (bytesPerPixel+3)*c.Width*c.Height}
}

var formats = []format{pngFormat, jpegFormat, webpFormat, gifFormat, bmpFormat}

// begins returns a test for one of some first bytes.
func begins(signatures ...string) func([]byte) bool {
	return func(data []byte) bool {
		for _, s := range signatures {
			if bytes.HasPrefix(data, []byte(s)) {
				return true
			}
		}
		return false
	}
}

func formatOf(data []byte) (*format, error) {
	for i := range formats {
		if formats[i].is(data) {
			return &formats[i], nil
		}
	}
	return nil, unsupported(data)
}

// unsupported returns the error for a file that no decoder reads, by name if its kind is known.
func unsupported(data []byte) error {
	if len(data) == 0 {
		return errors.New("the picture file is empty; send the whole file")
	}
	for _, k := range refusedKinds {
		if k.is(data) {
			return fmt.Errorf("%s files are not supported; %s", k.name, k.advice)
		}
	}
	return errors.New("the file is no picture of a known format; send PNG, JPEG, WebP, GIF or BMP")
}
