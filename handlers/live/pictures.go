package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/picture"
	"m40-llm/infer/units"
	"m40-llm/store"
)

// A picture of a question is uploaded before the question is sent. Until then it is in memory alone, known by its hash; the
// transaction that stores the question stores it, too. So what nobody sends is never stored, and pictures of temporary chats
// are not either.

// Limits of the pictures of a question. The page has them too: see web.MaxPictures.
const (
	MaxPictures     = 16       // of a question
	MaxPictureBytes = 20 << 20 // of a file
)

// Limits of pictures in memory.
const (
	maxUploads    = 256 << 20     // bytes of all that were uploaded and not sent
	uploadLife    = 2 * time.Hour // how long they are there
	maxTemporary  = 256 << 20     // bytes of those of all temporary chats
	maxPicturedMB = 40            // MiB of all pictures that a prompt has
)

// PictureLimits are what a picture file may have.
func PictureLimits() picture.Limits {
	limits := picture.DefaultLimits
	limits.Bytes = MaxPictureBytes
	return limits
}

// PictureGoneError says that a picture was uploaded too long ago, or that the server was started since.
type PictureGoneError struct{ Hash string }

func (e *PictureGoneError) Error() string {
	return "a picture of the message is not on the server any more; attach it again"
}

// uploads are the pictures that were uploaded and are not part of a message yet.
type uploads struct {
	decoding *picture.Budget

	mu    sync.Mutex
	list  []upload // the newest last
	bytes int
}

type upload struct {
	owner string
	at    time.Time
	store.Picture
}

// AddPicture checks a picture file and keeps it for a question that is to be sent. It decodes the file, so that a broken one is
// refused now.
func (s *Service) AddPicture(ctx context.Context, who Principal, data []byte) (store.Picture, error) {
	if err := may(who, access.ActionAsk, access.KindChat); err != nil {
		return store.Picture{}, err
	}
	data = picture.WithoutMetadata(data) // such as where it was taken, which readers of the chat have not to know
	info, err := picture.Inspect(data, PictureLimits())
	if err == nil {
		_, err = s.uploads.decoding.Decode(ctx, data, PictureLimits())
	}
	if err != nil {
		if ctx.Err() != nil {
			return store.Picture{}, ctx.Err()
		}
		return store.Picture{}, invalid("picture", "%s", err)
	}
	p := describe(data, info)
	s.uploads.add(upload{who.Owner, s.opt.Now(), p})
	p.Data = nil
	return p, nil
}

// ReadPicture returns a picture file with what its header says, or an error that says why it cannot be a picture of a message.
func ReadPicture(data []byte) (store.Picture, error) {
	info, err := picture.Inspect(data, PictureLimits())
	return describe(data, info), err
}

func describe(data []byte, info picture.Info) store.Picture {
	return store.Picture{Hash: store.PictureHash(data), Type: "image/" + strings.ToLower(info.Format), Width: info.Width, Height: info.Height, Bytes: len(data), Data: data}
}

// add keeps a picture, and drops those that are too old, and the oldest beyond the limit.
func (u *uploads) add(p upload) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop(func(other upload) bool {
		return other.owner == p.owner && other.Hash == p.Hash || p.at.Sub(other.at) > uploadLife
	})
	u.list = append(u.list, p)
	for u.bytes += p.Bytes; u.bytes > maxUploads; {
		u.bytes -= u.list[0].Bytes
		u.list = slices.Delete(u.list, 0, 1)
	}
}

// drop drops the pictures that are meant; the caller has mu.
func (u *uploads) drop(meant func(upload) bool) {
	u.list = slices.DeleteFunc(u.list, func(p upload) bool {
		if !meant(p) {
			return false
		}
		u.bytes -= p.Bytes
		return true
	})
}

// find returns a picture that a person uploaded.
func (u *uploads) find(owner, hash string) (store.Picture, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, p := range u.list {
		if p.owner == owner && p.Hash == hash {
			return p.Picture, true
		}
	}
	return store.Picture{}, false
}

// sent drops pictures of a person that are part of a message now.
func (u *uploads) sent(owner string, pictures []store.Picture) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop(func(p upload) bool {
		return p.owner == owner && slices.ContainsFunc(pictures, func(sent store.Picture) bool { return sent.Hash == p.Hash })
	})
}

// UploadedPicture returns a picture that who uploaded and has not sent yet.
func (s *Service) UploadedPicture(who Principal, hash string) (store.Picture, error) {
	if err := may(who, access.ActionAsk, access.KindChat); err != nil {
		return store.Picture{}, err
	}
	p, ok := s.uploads.find(who.Owner, hash)
	if !ok {
		return p, &PictureGoneError{hash}
	}
	return p, nil
}

// Picture returns a picture of a message of a chat, on whichever branch that is; ErrNoPicture if none has it.
func (c *Chat) Picture(ctx context.Context, who Principal, hash string) (store.Picture, error) {
	if err := c.may(who, access.ActionRead); err != nil {
		return store.Picture{}, err
	}
	return c.picture(ctx, hash)
}

// ErrNoPicture says that a chat has no such picture.
var ErrNoPicture = errors.New("this chat has no such picture")

func (c *Chat) picture(ctx context.Context, hash string) (store.Picture, error) {
	files, err := c.messages.Pictures(ctx, c.owner, c.id, []string{hash})
	if errors.Is(err, store.ErrNotFound) {
		return store.Picture{}, ErrNoPicture
	}
	if err != nil {
		return store.Picture{}, StoreError(err)
	}
	info, err := picture.Inspect(files[0], PictureLimits())
	if err != nil {
		return store.Picture{}, fmt.Errorf("the stored picture %s cannot be read: %w", hash, err)
	}
	return describe(files[0], info), nil
}

// WithFiles puts the files into the pictures of messages of a chat.
func (s *Service) WithFiles(ctx context.Context, who Principal, id string, list []store.Message) error {
	c, err := s.Chat(ctx, who, id)
	if err != nil {
		return err
	}
	if err := store.FillPictures(ctx, c.messages, c.owner, c.id, list); err != nil {
		return StoreError(err)
	}
	return nil
}

// pictured returns the pictures of a question with these hashes: uploaded ones, and those of messages of the branch.
func (c *Chat) pictured(hashes []string, raw bool) (list []store.Picture, err error) {
	if len(hashes) > 0 && raw {
		return nil, invalid("pictures", "a raw chat sends its text as it is and has no place for pictures; begin one that is not raw")
	}
	for _, hash := range hashes {
		p, ok := c.service.uploads.find(c.owner, hash)
		for _, t := range c.branch {
			if at := slices.IndexFunc(t.Pictures, func(p store.Picture) bool { return p.Hash == hash }); !ok && at >= 0 {
				p, ok = t.Pictures[at], true
				p.Data = nil
			}
		}
		if !ok {
			return nil, &PictureGoneError{hash}
		}
		list = append(list, p)
	}
	return list, nil
}

// checkSight returns an error if turns and the pictures of a question behind them have too many bytes for one prompt, or have
// any although the model cannot see.
func (c *Chat) checkSight(ctx context.Context, turns branch, more []store.Picture, model string) error {
	total, number := 0, len(more)
	for _, p := range more {
		total += p.Bytes
	}
	for _, t := range turns {
		number += len(t.Pictures)
		for _, p := range t.Pictures {
			total += p.Bytes
		}
	}
	if number == 0 {
		return nil
	}
	if c.temporary && len(more) > 0 {
		var used int64
		err := c.commit(ctx, func(ctx context.Context) (err error) {
			used, err = c.service.temporary.pictureBytes(ctx)
			return err
		})
		if err != nil {
			return StoreError(err)
		}
		if used+int64(filesOf(more)) > maxTemporary {
			return invalid("pictures", "the pictures of all temporary chats have %s, and with these more than the limit of %s; close temporary chats, or use one that is stored", units.ByteSize(used), units.ByteSize(maxTemporary))
		}
	}
	if total > maxPicturedMB<<20 {
		return invalid("pictures", "the pictures of this chat would have %s, more than the limit of %d MiB; send smaller ones, or start a new chat", units.ByteSize(int64(total)), maxPicturedMB)
	}
	if c.service.opt.Sight == nil {
		return nil
	}
	if model == "" {
		model = c.service.LoadedModel()
	}
	return c.commit(ctx, func(ctx context.Context) error { return c.service.opt.Sight(ctx, model) })
}

// filesOf returns how many bytes the files that come with pictures have.
func filesOf(pictures []store.Picture) (bytes int) {
	for _, p := range pictures {
		bytes += len(p.Data)
	}
	return bytes
}

func checkPictures(hashes []string) error {
	if len(hashes) > MaxPictures {
		return invalid("pictures", "the message has %d pictures, and at most %d fit; send several messages", len(hashes), MaxPictures)
	}
	return nil
}

// withMarks returns the content of a question whose pictures stand before its text.
func withMarks(text string, pictures int) string {
	if pictures == 0 {
		return text
	}
	return strings.Repeat(chat.PictureMark, pictures) + chat.WithoutPictureMarks(text)
}

// hashesOf returns the hashes of pictures where a request has their files. Requests are made with them, and get the files
// behind the locks, from loadPictures.
func hashesOf(pictures []store.Picture) (list [][]byte) {
	for _, p := range pictures {
		list = append(list, []byte(p.Hash))
	}
	return list
}

// loadPictures puts the files of a chat's pictures into a request, in the place of their hashes.
func (s *Service) loadPictures(ctx context.Context, owner, id string, r *infer.Request) error {
	if !slices.ContainsFunc(r.Messages, func(m chat.Message) bool { return len(m.Pictures) > 0 }) {
		return nil
	}
	from := messages(s.opt.Store)
	if db := s.temporary.has(ctx, owner, id); db != nil {
		from = db
	}
	if from == nil {
		return ErrNotFound
	}
	r.Messages = slices.Clone(r.Messages)
	for i := range r.Messages {
		m := &r.Messages[i]
		if len(m.Pictures) == 0 {
			continue
		}
		hashes := make([]string, len(m.Pictures))
		for k, hash := range m.Pictures {
			hashes[k] = string(hash)
		}
		var err error
		if m.Pictures, err = from.Pictures(ctx, owner, id, hashes); err != nil {
			return StoreError(err)
		}
	}
	return nil
}

// outline puts beginnings of files into a request that is only rendered, in the place of hashes: a prompt depends on the sizes
// of its pictures alone.
func outline(r *infer.Request, turns branch) {
	sizes := map[string][]byte{}
	for _, t := range turns {
		for _, p := range t.Pictures {
			sizes[p.Hash] = picture.Outline(p.Width, p.Height)
		}
	}
	r.Messages = slices.Clone(r.Messages)
	for i := range r.Messages {
		pictures := slices.Clone(r.Messages[i].Pictures)
		for k, hash := range pictures {
			pictures[k] = sizes[string(hash)]
		}
		r.Messages[i].Pictures = pictures
	}
}
