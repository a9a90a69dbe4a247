package picture

import (
	"encoding/binary"
	"errors"
)

// webpFrame is the only picture of a WebP file, or the first frame of an animation.
type webpFrame struct {
	file          []byte // as a file without animation
	animated      bool
	left, top     int // of the frame on the canvas of an animation
	width, height int // of that canvas
}

var (
	errNoFrames = errors.New("it is an animation without frames")
	errOutside  = errors.New("a frame is outside of its canvas")
)

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

func firstWebPFrame(data []byte) (webpFrame, error) {
	f := webpFrame{file: data}
	webpChunks(data, func(id string, payload []byte) bool {
		switch {
		case id == "VP8X" && len(payload) >= 10 && payload[0]&2 != 0:
			f = webpFrame{animated: true, width: uint24(payload[4:]) + 1, height: uint24(payload[7:]) + 1}
		case id == "ANMF" && f.animated && len(payload) >= 16:
			f.left, f.top = 2*uint24(payload), 2*uint24(payload[3:])
			f.file = stillWebP(payload[6:12], payload[16:])
		}
		return f.animated && f.file == nil || id == "VP8X" && !f.animated
	})
	if f.file == nil {
		return f, errNoFrames
	}
	return f, nil
}

// stillWebP returns a file of a frame's chunks, with the six bytes of its size.
func stillWebP(size, chunks []byte) []byte {
	flags := byte(0)
	if len(chunks) >= 4 && string(chunks[:4]) == "ALPH" {
		flags = 0x10
	}
	file := make([]byte, 8, 30+len(chunks))
	file = append(file, "WEBPVP8X\x0a\x00\x00\x00"...)
	file = append(append(file, flags, 0, 0, 0), size...)
	file = append(file, chunks...)
	copy(file, "RIFF")
	binary.LittleEndian.PutUint32(file[4:], uint32(len(file)-8))
	return file
}

// onCanvas returns the header of the canvas on which a frame is drawn.
func (f webpFrame) onCanvas(h header) (header, error) {
	if !f.animated {
		return h, nil
	}
	if f.left+h.width > f.width || f.top+h.height > f.height {
		return header{}, errOutside
	}
	return header{f.width, f.height, h.memory + 3*f.width*f.height + len(f.file)}, nil
}

// paste returns the canvas with the frame on it. The rest is black, as transparent pixels without alpha are.
func (f webpFrame) paste(frame *Image) *Image {
	if !f.animated {
		return frame
	}
	canvas := newImage(f.width, f.height)
	for y := range frame.Height {
		copy(canvas.Pix[3*((f.top+y)*f.width+f.left):], frame.Pix[3*y*frame.Width:][:3*frame.Width])
	}
	return canvas
}
