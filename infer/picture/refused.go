package picture

import (
	"bytes"
	"slices"
)

// refusedKind is a kind of file that people send and no decoder here reads.
type refusedKind struct {
	name   string
	is     func(data []byte) bool
	advice string
}

const (
	convert  = "convert it to PNG or JPEG"
	convertX = "convert it to JPEG, or set the phone's camera to its most compatible format"
)

var refusedKinds = []refusedKind{
	{"HEIC", brand("heic", "heix", "heim", "heis", "hevc", "hevx", "heif", "mif1", "msf1"), convertX},
	{"AVIF", brand("avif", "avis"), convert},
	{"SVG", isSVG, "draw it as PNG, at the size at which it is to be seen"},
	{"TIFF", begins("II*\x00", "MM\x00*", "II+\x00", "MM\x00+"), convert},
	{"JPEG XL", begins("\xff\x0a", "\x00\x00\x00\x0cJXL \r\n\x87\n"), convert},
	{"JPEG 2000", begins("\x00\x00\x00\x0cjP  \r\n\x87\n", "\xff\x4f\xff\x51"), convert},
	{"icon (ICO)", begins("\x00\x00\x01\x00", "\x00\x00\x02\x00"), convert},
	{"Photoshop (PSD)", begins("8BPS"), convert},
	{"PDF", begins("%PDF-"), "save the page as PNG"},
	{"PostScript", begins("%!PS"), "save the page as PNG"},
	{"video (MP4 or QuickTime)", brand("isom", "iso2", "iso4", "iso5", "iso6", "mp41", "mp42", "avc1", "qt  ", "M4V ", "3gp4", "3gp5"), "send single frames as JPEG"},
	{"video (WebM or Matroska)", begins("\x1a\x45\xdf\xa3"), "send single frames as JPEG"},
}

// brand returns a test for a file in ISO boxes whose first box has one of the brands, the major one first.
func brand(brands ...string) func([]byte) bool {
	return func(data []byte) bool {
		return len(data) >= 12 && string(data[4:8]) == "ftyp" && slices.Contains(brands, string(data[8:12]))
	}
}

// isSVG reports whether a text holds an svg element near its start.
func isSVG(data []byte) bool {
	start := bytes.TrimLeft(bytes.TrimPrefix(data[:min(len(data), 4096)], []byte("\xef\xbb\xbf")), " \t\r\n")
	return bytes.HasPrefix(start, []byte("<")) && bytes.Contains(bytes.ToLower(start), []byte("<svg"))
}
