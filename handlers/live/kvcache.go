package live

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"m40-llm/handlers/access"
	"m40-llm/infer"
	"m40-llm/infer/kvfile"
	"m40-llm/store"
)

// The engine stores the KV cache of a chat in a file after an answer, and restores it before the next one,
// so that a chat that is opened again needs no prefill. A file belongs to its chat: it is named after it,
// may exist as long as the chat does, and is deleted with it. Temporary chats have none.

// KVCache describes the stored KV cache of a chat.
type KVCache struct {
	Stored    bool  // it is stored at all: the chat is not temporary
	Tokens    int   // that the next answer need not read; 0: none, the cache is cold
	Bytes     int64 // of the file, which may be of another model
	Total     int64 // bytes of the files of all chats
	Megabytes int   // limit of all files, in 2^20 bytes; 0: none are stored
}

const (
	kvSetting          = "kv_cache" // of the server: Megabytes
	defaultKVMegabytes = 4096
	maxKVMegabytes     = 1 << 20
)

// readKVLimit reads the limit of all files.
func (s *Service) readKVLimit(ctx context.Context) error {
	s.kvLimit.Store(defaultKVMegabytes)
	if s.opt.Store == nil || s.opt.KVFiles == nil {
		return nil
	}
	text, err := s.opt.Store.Setting(ctx, store.OwnerID, kvSetting)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	var megabytes int64
	if err == nil {
		err = json.Unmarshal(text, &megabytes)
	}
	if err == nil && megabytes >= 0 && megabytes <= maxKVMegabytes {
		s.kvLimit.Store(megabytes)
	}
	return err
}

// kvFile returns the file for the KV cache of the chat, which exists then; nil: there is none.
func (c *Chat) kvFile() *infer.KVFile {
	s := c.service
	limit := s.kvLimit.Load()
	if c.temporary || s.opt.KVFiles == nil || limit == 0 {
		return nil
	}
	if err := s.opt.KVFiles.Allow(c.id); err != nil {
		s.opt.Log.Warn("no file for the KV cache of a chat", "chat", c.id, "error", err)
		return nil
	}
	return &infer.KVFile{Name: c.id, Limit: limit << 20}
}

// KVCache describes the stored KV cache of a chat.
func (c *Chat) KVCache(who Principal) (k KVCache, err error) {
	if err := c.may(who, access.ActionRead); err != nil {
		return k, err
	}
	s := c.service
	if c.temporary || s.opt.KVFiles == nil {
		return k, nil
	}
	file, err := s.opt.KVFiles.Stored(c.id)
	if err != nil {
		return k, err
	}
	k = KVCache{Stored: true, Bytes: file.Bytes, Megabytes: int(s.kvLimit.Load())}
	status := s.engine.Status()
	wanted := cmp.Or(c.model(), status.Model.Name)
	loaded := status.Of(wanted)
	if usable := loaded == nil || file.Key == loaded.Cache.Key; usable && file.Model == wanted {
		k.Tokens = file.Positions
	}
	k.Total, err = s.opt.KVFiles.Size()
	return k, err
}

// KVCaches describes the stored KV caches of all chats: Stored, Total and Megabytes.
func (s *Service) KVCaches(who Principal) (k KVCache, err error) {
	if err := may(who, access.ActionRead, access.KindChat); err != nil || s.opt.KVFiles == nil {
		return k, err
	}
	k = KVCache{Stored: true, Megabytes: int(s.kvLimit.Load())}
	k.Total, err = s.opt.KVFiles.Size()
	return k, err
}

// model returns the name of the model that answers; empty: the one that is loaded.
func (c *Chat) model() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.metadata.Model
}

// RemoveKVCache deletes the stored KV cache of a chat.
func (c *Chat) RemoveKVCache(who Principal) error {
	if err := c.may(who, access.ActionChange); err != nil {
		return err
	}
	return c.service.removeKVFile(c.id)
}

func (s *Service) removeKVFile(chat string) error {
	if s.opt.KVFiles == nil {
		return nil
	}
	return s.opt.KVFiles.Remove(chat)
}

// dropKVFile removes the file of a chat, and logs if it cannot.
func (s *Service) dropKVFile(chat string) {
	if err := s.removeKVFile(chat); err != nil {
		s.opt.Log.Warn("failed to delete the KV cache of a chat", "chat", chat, "error", err)
	}
}

// SetKVLimit sets how many megabytes the KV caches of all chats may take, and deletes the least recently
// used ones beyond. The owner of the server may, else the error is access.ErrDenied.
func (s *Service) SetKVLimit(ctx context.Context, who Principal, megabytes int) error {
	if err := mayManageModels(who); err != nil {
		return err
	}
	if s.opt.Store == nil || s.opt.KVFiles == nil {
		return ErrNotFound
	}
	if megabytes < 0 || megabytes > maxKVMegabytes {
		return infer.Invalid("megabytes", "megabytes is %d, but must be from 0 to %d", megabytes, maxKVMegabytes)
	}
	value, err := json.Marshal(megabytes)
	if err == nil {
		err = s.opt.Store.SetSetting(context.WithoutCancel(ctx), store.OwnerID, kvSetting, value)
	}
	if err != nil {
		return StoreError(err)
	}
	s.kvLimit.Store(int64(megabytes))
	if megabytes == 0 { // empty files too, so that no running answer stores what is not wanted any more
		return s.opt.KVFiles.RemoveIf(func(kvfile.Stored) bool { return true })
	}
	return s.opt.KVFiles.Evict(int64(megabytes) << 20)
}

// PruneKVCaches deletes the KV caches of chats that do not exist, or are in the trash, and those beyond the
// limit.
func (s *Service) PruneKVCaches(ctx context.Context) error {
	if s.opt.Store == nil || s.opt.KVFiles == nil {
		return nil
	}
	ids, err := s.opt.Store.ConversationIDs(ctx)
	if err != nil {
		return StoreError(err)
	}
	exists := map[string]bool{}
	for _, id := range ids {
		exists[id] = true
	}
	err = s.opt.KVFiles.RemoveIf(func(file kvfile.Stored) bool { return !exists[file.Name] && s.find(file.Name) == nil })
	return errors.Join(err, s.opt.KVFiles.Evict(s.kvLimit.Load()<<20))
}
