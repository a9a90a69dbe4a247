package live

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"m40-llm/handlers/access"
	"m40-llm/handlers/attached"
	"m40-llm/handlers/owned"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/units"
	"m40-llm/store"
)

const maxPicturedMB = 40 // MiB of all pictures that a prompt has

// Picture returns a picture of a message of a chat, on whichever branch that is; ErrNoPicture if none has it.
func (c *Chat) Picture(ctx context.Context, who Principal, hash string) (store.Picture, error) {
	if err := c.may(who, access.ActionRead); err != nil {
		return store.Picture{}, err
	}
	return c.picture(ctx, hash)
}

// ErrNoPicture says that a chat has no such picture.
var ErrNoPicture = fault.New(fault.CodePictureNotFound, "this chat has no such picture")

func (c *Chat) picture(ctx context.Context, hash string) (store.Picture, error) {
	files, err := c.messages.Pictures(ctx, c.owner, c.id, []string{hash})
	if errors.Is(err, store.ErrNotFound) {
		return store.Picture{}, ErrNoPicture
	}
	if err != nil {
		return store.Picture{}, owned.StoreError(err)
	}
	p, err := attached.Read(files[0])
	if err != nil {
		return store.Picture{}, fmt.Errorf("the stored picture %s cannot be read: %w", hash, err)
	}
	return p, nil
}

// WithFiles puts the files into the pictures of messages of a chat.
func (s *Service) WithFiles(ctx context.Context, who Principal, id string, list []store.Message) error {
	c, err := s.Chat(ctx, who, id)
	if err != nil {
		return err
	}
	if err := store.FillPictures(ctx, c.messages, c.owner, c.id, list); err != nil {
		return owned.StoreError(err)
	}
	return nil
}

// pictured returns the pictures of a question with these names: uploaded ones, and those of messages of the branch.
func (c *Chat) pictured(names []string, raw bool) (list []store.Picture, err error) {
	if len(names) > 0 && raw {
		return nil, fault.Invalid("pictures", "a raw chat sends its text as it is and has no place for pictures; begin one that is not raw")
	}
	for _, name := range names {
		hash, detail, err := attached.ParseName(name)
		if err != nil {
			return nil, err
		}
		p, ok := c.service.Uploads.Find(c.owner, hash)
		for _, t := range c.branch {
			if at := slices.IndexFunc(t.Pictures, func(p store.Picture) bool { return p.Hash == hash }); !ok && at >= 0 {
				p, ok = t.Pictures[at], true
				p.Data = nil
			}
		}
		if !ok {
			return nil, &attached.GoneError{Hash: hash}
		}
		p.Detail = detail
		list = append(list, p)
	}
	return list, nil
}

// checkSight returns an error if turns and the pictures of a question after them have too many bytes for one prompt, or have
// any although the model cannot see.
func (c *Chat) checkSight(ctx context.Context, turns branch, more []store.Picture, model string) error {
	all, total := append(turns.pictures(), more...), 0
	if len(all) == 0 {
		return nil
	}
	for _, p := range all {
		total += p.Bytes
	}
	if c.temporary && len(more) > 0 {
		err := c.commit(ctx, func(ctx context.Context) error {
			return c.service.temporary.CheckPictures(ctx, attached.FileBytes(more))
		})
		if err != nil {
			return err
		}
	}
	if total > maxPicturedMB<<20 {
		return fault.Invalid("pictures", "the pictures of this chat would have %s, more than the limit of %d MiB; send smaller ones, or start a new chat", units.ByteSize(int64(total)), maxPicturedMB)
	}
	if c.service.opt.Sight == nil {
		return nil
	}
	if model == "" {
		model = c.service.LoadedModel()
	}
	return c.commit(ctx, func(ctx context.Context) error { return c.service.opt.Sight(ctx, model) })
}

// loadPictures puts the files of a chat's pictures into a request, in the place of their hashes.
func (s *Service) loadPictures(ctx context.Context, owner, id string, r *infer.Request) error {
	if !attached.Has(r.Messages) {
		return nil
	}
	from := messages(s.opt.Store)
	if db := s.temporary.Has(ctx, owner, id); db != nil {
		from = db
	}
	if from == nil {
		return owned.ErrNotFound
	}
	list, err := attached.Replace(r.Messages, func(hashes []string) ([][]byte, error) { return from.Pictures(ctx, owner, id, hashes) })
	if err != nil {
		return owned.StoreError(err)
	}
	r.Messages = list
	return nil
}

// pictures returns the pictures of the messages.
func (b branch) pictures() (list []store.Picture) {
	for _, t := range b {
		list = append(list, t.Pictures...)
	}
	return list
}
