package live

import (
	"bytes"
	"image"
	"image/jpeg"
	"testing"
)

func TestAPhotographIsKeptWithoutWhatTheCameraWroteBesideIt(t *testing.T) {
	var photo bytes.Buffer
	if err := jpeg.Encode(&photo, image.NewGray(image.Rect(0, 0, 9, 7)), nil); err != nil {
		t.Fatal(err)
	}
	const place = "48.8584 N, 2.2945 E"
	data := append([]byte("\xff\xd8\xff\xfe\x00\x15"+place), photo.Bytes()[2:]...) // a comment of 2 + 19 bytes
	s, _ := newService(t, Options{})
	added, err := s.AddPicture(t.Context(), me, data)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := s.UploadedPicture(me, added.Hash)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(kept.Data, []byte(place)) || kept.Width != 9 || kept.Height != 7 {
		t.Errorf("the picture of %d x %d has the place: %t", kept.Width, kept.Height, bytes.Contains(kept.Data, []byte(place)))
	}
}
