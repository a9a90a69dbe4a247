// Package attached is about the pictures of messages: their limits, those that people have uploaded and not sent yet, and
// how a request has them.
//
// A picture of a question is uploaded before the question is sent. Until then it is in memory alone, known by its hash; the
// transaction that stores the question stores it, too. So a picture that is not sent is never stored, and pictures of temporary chats
// are not either.
package attached

import (
	"slices"
	"strings"

	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/picture"
	"m40-llm/store"
)

// Limits of the pictures of a question. The page has them too: see web.MaxPictures.
const (
	MaxPictures = 16       // of a question
	MaxBytes    = 20 << 20 // of a file
)

// Limits are what a picture file may have.
func Limits() picture.Limits {
	limits := picture.DefaultLimits
	limits.Bytes = MaxBytes
	return limits
}

// CheckNumber returns an error if a question has too many pictures.
func CheckNumber(names []string) error {
	if len(names) > MaxPictures {
		return fault.Invalid("pictures", "the message has %d pictures, and at most %d fit; send several messages", len(names), MaxPictures)
	}
	return nil
}

// Read returns a picture file with what its header says, or an error that says why it cannot be a picture of a message.
func Read(data []byte) (store.Picture, error) {
	info, err := picture.Inspect(data, Limits())
	return store.Picture{Hash: store.PictureHash(data), Type: "image/" + strings.ToLower(info.Format), Width: info.Width, Height: info.Height, Bytes: len(data), Data: data}, err
}

// GoneError says that a picture was uploaded too long ago, or that the server was started since.
type GoneError struct{ Hash string }

func (e *GoneError) Error() string {
	return "a picture of the message is not on the server any more; attach it again"
}

func (e *GoneError) Unwrap() error {
	return &fault.Error{Code: fault.CodePictureGone, Param: "pictures", Message: e.Error()}
}

// FileBytes returns how many bytes the files that come with pictures have.
func FileBytes(pictures []store.Picture) (n int) {
	for _, p := range pictures {
		n += len(p.Data)
	}
	return n
}

// Name returns what a question calls a picture: its hash, and after a colon the detail in which it is read, unless that is full.
func Name(hash, detail string) string {
	if detail == string(chat.Full) {
		return hash
	}
	return hash + ":" + detail
}

// ParseName returns the hash and the detail of a picture by its Name.
func ParseName(name string) (hash, detail string, err error) {
	hash, detail, _ = strings.Cut(name, ":")
	if !chat.Detail(detail).IsKnown() {
		return "", "", fault.Invalid("pictures", "a picture has the detail %q: must be %s, %s or none", detail, chat.Low, chat.Medium)
	}
	return hash, detail, nil
}

// Message returns a question as the engine gets it: its pictures precede its text. It has their hashes in the place of their files
// until Replace.
func Message(text string, pictures []store.Picture) chat.Message {
	m := chat.Message{Role: "user", Content: text}
	if len(pictures) > 0 {
		m.Content = strings.Repeat(chat.PictureMark, len(pictures)) + chat.WithoutPictureMarks(text)
	}
	for _, p := range pictures {
		m.AddPicture([]byte(p.Hash), chat.Detail(p.Detail))
	}
	return m
}

// Has reports whether messages have pictures.
func Has(messages []chat.Message) bool {
	return slices.ContainsFunc(messages, func(m chat.Message) bool { return len(m.Pictures) > 0 })
}

// Replace returns messages with what files returns for the hashes of the pictures of each.
func Replace(messages []chat.Message, files func(hashes []string) ([][]byte, error)) ([]chat.Message, error) {
	messages = slices.Clone(messages)
	for i := range messages {
		m := &messages[i]
		if len(m.Pictures) == 0 {
			continue
		}
		hashes := make([]string, len(m.Pictures))
		for k, hash := range m.Pictures {
			hashes[k] = string(hash)
		}
		var err error
		if m.Pictures, err = files(hashes); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

// Outline returns messages with beginnings of files in the place of hashes, for a request that is only rendered: a prompt
// depends on the sizes of its pictures alone. known are the pictures of the chat.
func Outline(messages []chat.Message, known []store.Picture) []chat.Message {
	messages, _ = Replace(messages, func(hashes []string) ([][]byte, error) { // cannot fail
		files := make([][]byte, len(hashes))
		for k, hash := range hashes {
			if at := slices.IndexFunc(known, func(p store.Picture) bool { return p.Hash == hash }); at >= 0 {
				files[k] = picture.Outline(known[at].Width, known[at].Height)
			}
		}
		return files, nil
	})
	return messages
}
