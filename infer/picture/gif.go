package picture

import (
	"bytes"
	"errors"
	"image"
	"image/gif"
)

var gifFormat = format{
	name:   "GIF",
	is:     begins("GIF87a", "GIF89a"),
	header: gifHeader,
	decode: decodeGIF,
	exif:   func([]byte) []byte { return nil },
}

func gifHeader(data []byte) (header, error) {
	c, err := gif.DecodeConfig(bytes.NewReader(data))
	return sized(c, 1), err
}

// decodeGIF decodes the first frame; what follows it is not read, so the number of frames costs nothing.
func decodeGIF(data []byte) (*Image, error) {
	src, err := gif.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	frame, ok := src.(*image.Paletted)
	if !ok {
		return nil, unexpectedColours(src)
	}
	screen, err := readGIFScreen(data)
	if err != nil {
		return nil, err
	}
	dst := newImage(screen.width, screen.height)
	for i := 0; i < len(dst.Pix); i += 3 {
		copy(dst.Pix[i:], screen.table[screen.background][:])
	}
	for y := frame.Rect.Min.Y; y < frame.Rect.Max.Y; y++ {
		row := frame.Pix[(y-frame.Rect.Min.Y)*frame.Stride:][:frame.Rect.Dx()]
		for x, index := range row {
			copy(dst.Pix[3*(y*dst.Width+frame.Rect.Min.X+x):], screen.table[index][:])
		}
	}
	return dst, nil
}

// gifScreen is what a GIF says before the pixels of its first frame. The decoder of the library forgets the colour
// after the transparent index, which published preprocessors show.
type gifScreen struct {
	width, height int
	table         [256][3]byte
	background    byte // index of the colour around a frame that is smaller than the screen
}

var errGIF = errors.New("the first frame is missing")

func readGIFScreen(data []byte) (*gifScreen, error) {
	if len(data) < 13 {
		return nil, errGIF
	}
	s := &gifScreen{width: int(data[6]) | int(data[7])<<8, height: int(data[8]) | int(data[9])<<8}
	rest := s.readTable(data[10], data[13:])
	for len(rest) > 10 {
		switch rest[0] {
		case 0x21: // extension
			if rest[1] == 0xf9 && rest[3]&1 == 1 {
				s.background = rest[6] // transparent
			}
			rest = afterBlocks(rest[2:])
		case 0x2c: // a frame
			s.readTable(rest[9], rest[10:])
			return s, nil
		default:
			return nil, errGIF
		}
	}
	return nil, errGIF
}

// readTable reads the table of colours that flags announce, and returns what follows it.
func (s *gifScreen) readTable(flags byte, data []byte) []byte {
	if flags&0x80 == 0 {
		return data
	}
	n := 2 << (flags & 7)
	if len(data) < 3*n {
		return nil
	}
	s.table = [256][3]byte{}
	for i := range n {
		s.table[i] = [3]byte(data[3*i:])
	}
	return data[3*n:]
}

// afterBlocks returns what follows a sequence of blocks, each after its length, up to one of length 0.
func afterBlocks(data []byte) []byte {
	for len(data) > 0 {
		n := int(data[0])
		if n == 0 {
			return data[1:]
		}
		data = data[min(len(data), n+1):]
	}
	return nil
}
