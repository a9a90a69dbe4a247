package attached

import (
	"bytes"
	"errors"
	"image"
	"image/jpeg"
	"image/png"
	"testing"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

var me = access.Local

func TestAPhotographIsStoredWithoutWhatTheCameraWroteIntoIt(t *testing.T) {
	var photo bytes.Buffer
	if err := jpeg.Encode(&photo, image.NewGray(image.Rect(0, 0, 9, 7)), nil); err != nil {
		t.Fatal(err)
	}
	const place = "48.8584 N, 2.2945 E"
	data := append([]byte("\xff\xd8\xff\xfe\x00\x15"+place), photo.Bytes()[2:]...) // a comment of 2 + 19 bytes
	u := NewUploads(time.Now)
	added, err := u.Add(t.Context(), me, data)
	if err != nil {
		t.Fatal(err)
	}
	got, err := u.Get(me, added.Hash)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(got.Data, []byte(place)) || got.Width != 9 || got.Height != 7 {
		t.Errorf("the picture of %d x %d has the place: %t", got.Width, got.Height, bytes.Contains(got.Data, []byte(place)))
	}
}

// add uploads a picture of a width and returns it.
func add(t *testing.T, u *Uploads, width int) store.Picture {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, 1))); err != nil {
		t.Fatal(err)
	}
	p, err := u.Add(t.Context(), me, b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestUploadsAreHeldUntilTheyAreSentOrTooOld(t *testing.T) {
	now := time.Unix(0, 0)
	u := NewUploads(func() time.Time { return now })
	old := add(t, u, 1)
	now = now.Add(uploadLife)
	sent, left := add(t, u, 2), add(t, u, 3)
	add(t, u, 3) // again, which takes no more memory
	now = now.Add(time.Second)
	last := add(t, u, 4)
	u.Sent(me.Owner, []store.Picture{sent})
	for _, c := range []struct {
		what string
		p    store.Picture
		held bool
	}{{"an old picture", old, false}, {"a sent one", sent, false}, {"one that was uploaded twice", left, true}, {"the last one", last, true}} {
		_, err := u.Get(me, c.p.Hash)
		if gone := (&GoneError{}); c.held != (err == nil) || err != nil && !errors.As(err, &gone) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	if _, ok := u.Find("somebody else", last.Hash); ok {
		t.Error("another person gets the picture")
	}
	if want := left.Bytes + last.Bytes; u.bytes != want {
		t.Errorf("%d bytes are counted, want %d", u.bytes, want)
	}
}

func TestABrokenPictureIsRefusedWhenItIsUploaded(t *testing.T) {
	u := NewUploads(time.Now)
	var refused *fault.Error
	if _, err := u.Add(t.Context(), me, []byte("\x89PNG\r\n\x1a\n")); !errors.As(err, &refused) || refused.Param != "picture" {
		t.Errorf("got %v", err)
	}
}
