package attached

import (
	"context"
	"slices"
	"sync"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/handlers/owned"
	"m40-llm/infer/fault"
	"m40-llm/infer/picture"
	"m40-llm/store"
)

const (
	maxUploads = 256 << 20     // bytes of all pictures in memory
	uploadLife = 2 * time.Hour // after which a picture that was not sent is dropped
)

// Uploads are the pictures that were uploaded and are not part of a message yet.
type Uploads struct {
	now      func() time.Time
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

// NewUploads returns Uploads without pictures.
func NewUploads(now func() time.Time) *Uploads {
	return &Uploads{now: now, decoding: picture.NewBudget(int64(picture.DefaultLimits.Memory))}
}

// Add checks a picture file and holds it for a question that is to be sent. It decodes the file, so that a broken one is
// refused now.
func (u *Uploads) Add(ctx context.Context, who access.Principal, data []byte) (store.Picture, error) {
	if err := owned.May(who, access.ActionAsk, access.KindChat); err != nil {
		return store.Picture{}, err
	}
	p, err := Read(picture.WithoutMetadata(data)) // such as where it was taken, which must not reach readers of the chat
	if err == nil {
		_, err = u.decoding.Decode(ctx, p.Data, Limits())
	}
	if err != nil {
		if ctx.Err() != nil {
			return store.Picture{}, ctx.Err()
		}
		return store.Picture{}, fault.Invalid("picture", "%s", err)
	}
	u.add(upload{who.Owner, u.now(), p})
	p.Data = nil
	return p, nil
}

// Get returns a picture that who uploaded and has not sent yet.
func (u *Uploads) Get(who access.Principal, hash string) (store.Picture, error) {
	if err := owned.May(who, access.ActionAsk, access.KindChat); err != nil {
		return store.Picture{}, err
	}
	p, ok := u.Find(who.Owner, hash)
	if !ok {
		return p, &GoneError{hash}
	}
	return p, nil
}

// Find returns a picture that a person uploaded.
func (u *Uploads) Find(owner, hash string) (store.Picture, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, p := range u.list {
		if p.owner == owner && p.Hash == hash {
			return p.Picture, true
		}
	}
	return store.Picture{}, false
}

// Sent drops pictures of a person that are part of a message now.
func (u *Uploads) Sent(owner string, pictures []store.Picture) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop(func(p upload) bool {
		return p.owner == owner && slices.ContainsFunc(pictures, func(sent store.Picture) bool { return sent.Hash == p.Hash })
	})
}

// add holds a picture, and drops those that are too old, and the oldest beyond the limit.
func (u *Uploads) add(p upload) {
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

// drop drops the pictures for which matches returns true; the caller has mu.
func (u *Uploads) drop(matches func(upload) bool) {
	u.list = slices.DeleteFunc(u.list, func(p upload) bool {
		if !matches(p) {
			return false
		}
		u.bytes -= p.Bytes
		return true
	})
}
