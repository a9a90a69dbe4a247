package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"

	"golang.org/x/image/webp"
)

var webpFormat = format{
	name: "WebP",
	is: func(data []byte) bool {
		return len(data) >= 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP"
	},
	header: webpHeader,
	decode: decodeWebP,
	exif:   webpEXIF,
}

// webpChunks calls visit with each chunk in turn until it returns false.
func webpChunks(data []byte, visit func(id string, payload []byte) bool) {
	data = data[12:]
	for len(data) >= 8 {
		n := uint64(binary.LittleEndian.Uint32(data[4:]))
		payload := data[8:][:min(n, uint64(len(data)-8))]
		if !visit(string(data[:4]), payload) {
			return
		}
		data = data[min(8+n+n%2, uint64(len(data))):]
	}
}

var (
	errCut        = errors.New("its end is missing")
	errTwoSizes   = errors.New("it has two different sizes")
	errNoPictures = errors.New("it holds no picture")
)

// A lossless picture, or alpha, has up to 65,536 groups of five tables with 2,680 bytes each, made before any is read. Their
// entries are 16 bytes, of which a byte of the file can make 16.
const (
	losslessGroups  = 65536 * 2680
	losslessPerByte = 16 * 16
)

// webpHeader returns the size of the picture, or of the canvas of an animation, and what decoding takes.
func webpHeader(data []byte) (header, error) {
	if uint64(binary.LittleEndian.Uint32(data[4:]))+8 > uint64(len(data)) {
		return header{}, errCut
	}
	f, err := firstWebPFrame(data)
	if err != nil {
		return header{}, err
	}
	h, err := stillHeader(f.file)
	if err != nil {
		return header{}, err
	}
	return f.onCanvas(h)
}

// stillHeader returns the size of a picture, which a file has once or twice.
func stillHeader(data []byte) (header, error) {
	c, err := webp.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return header{}, err
	}
	var frame image.Config
	memory := 2 * len(data)
	webpChunks(data, func(id string, payload []byte) bool {
		if id == "VP8L" || id == "ALPH" {
			memory += losslessGroups + losslessPerByte*len(payload)
		}
		if id == "VP8 " || id == "VP8L" {
			frame = frameSize(id, payload)
		}
		return frame.Width == 0
	})
	switch {
	case frame.Width == 0:
		return header{}, errNoPictures
	case frame.Width != c.Width || frame.Height != c.Height:
		return header{}, errTwoSizes
	}
	h := sized(c, 12) // four bytes a pixel, twice while a transform is undone, and alpha
	h.memory += memory
	return h, nil
}

// frameSize reads the size of a lossy (VP8) or lossless (VP8L) picture; 0 if it is cut off.
func frameSize(id string, payload []byte) (c image.Config) {
	if len(payload) < 10 {
		return c
	}
	if id == "VP8L" {
		bits := binary.LittleEndian.Uint32(payload[1:])
		return image.Config{Width: int(bits&0x3fff) + 1, Height: int(bits>>14&0x3fff) + 1}
	}
	return image.Config{
		Width:  int(binary.LittleEndian.Uint16(payload[6:]) & 0x3fff),
		Height: int(binary.LittleEndian.Uint16(payload[8:]) & 0x3fff),
	}
}

func decodeWebP(data []byte) (*Image, error) {
	f, err := firstWebPFrame(data)
	if err != nil {
		return nil, err
	}
	img, err := decodeStill(f.file)
	if err != nil {
		return nil, err
	}
	return f.paste(img), nil
}

func decodeStill(data []byte) (*Image, error) {
	src, err := webp.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	switch s := src.(type) {
	case *image.YCbCr:
		return fromYCbCr(s, studio, webpChroma), nil
	case *image.NYCbCrA:
		return fromYCbCr(&s.YCbCr, studio, webpChroma), nil
	}
	return flatten(src, nil)
}

func webpEXIF(data []byte) (exif []byte) {
	webpChunks(data, func(id string, payload []byte) bool {
		if id == "EXIF" {
			exif = bytes.TrimPrefix(payload, []byte("Exif\x00\x00"))
		}
		return exif == nil
	})
	return exif
}
