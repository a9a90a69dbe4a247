package picture

import (
	"bytes"

	"golang.org/x/image/bmp"
)

var bmpFormat = format{
	name: "BMP",
	is:   begins("BM"),
	header: func(data []byte) (header, error) {
		c, err := bmp.DecodeConfig(bytes.NewReader(data))
		return sized(c, 4), err
	},
	decode: func(data []byte) (*Image, error) { return flatten(bmp.Decode(bytes.NewReader(data))) },
	exif:   func([]byte) []byte { return nil },
}
