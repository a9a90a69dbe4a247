package disk

import (
	"context"
	"encoding/json"
	"errors"

	"m40-llm/handlers/access"
	"m40-llm/handlers/owned"
	"m40-llm/infer"
	"m40-llm/infer/fault"
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
	if s.store == nil || s.files == nil {
		return nil
	}
	text, err := s.store.Setting(ctx, store.OwnerID, kvSetting)
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

// KVFile returns the file for the KV cache of a stored chat, which exists then; nil: there is none.
func (s *Service) KVFile(chat string) *infer.KVFile {
	limit := s.kvLimit.Load()
	if s.files == nil || limit == 0 {
		return nil
	}
	if err := s.files.Allow(chat); err != nil {
		s.log.Warn("no file for the KV cache of a chat", "chat", chat, "error", err)
		return nil
	}
	return &infer.KVFile{Name: chat, Limit: limit << 20}
}

// KVCache describes the stored KV cache of a stored chat. model is the one that answers next, and usable
// reports whether it can read files with a key.
func (s *Service) KVCache(chat, model string, usable func(key string) bool) (k KVCache, err error) {
	if s.files == nil {
		return k, nil
	}
	file, err := s.files.Stored(chat)
	if err != nil {
		return k, err
	}
	k = KVCache{Stored: true, Bytes: file.Bytes, Megabytes: int(s.kvLimit.Load())}
	if usable(file.Key) && file.Model == model {
		k.Tokens = file.Positions
	}
	k.Total, err = s.files.Size()
	return k, err
}

// KVCaches describes the stored KV caches of all chats: Stored, Total and Megabytes.
func (s *Service) KVCaches(who access.Principal) (k KVCache, err error) {
	if err := owned.May(who, access.ActionRead, access.KindChat); err != nil || s.files == nil {
		return k, err
	}
	k = KVCache{Stored: true, Megabytes: int(s.kvLimit.Load())}
	k.Total, err = s.files.Size()
	return k, err
}

// RemoveKVFile deletes the stored KV cache of a chat, if there is one.
func (s *Service) RemoveKVFile(chat string) error {
	if s.files == nil {
		return nil
	}
	return s.files.Remove(chat)
}

// DropKVFile is RemoveKVFile for a chat that changes or goes away whether its file can be deleted or not.
func (s *Service) DropKVFile(chat string) {
	if err := s.RemoveKVFile(chat); err != nil {
		s.log.Warn("failed to delete the KV cache of a chat", "chat", chat, "error", err)
	}
}

// SetKVLimit sets how many megabytes the KV caches of all chats may take, and deletes the least recently
// used ones beyond. The owner of the server may, else the error is access.ErrDenied.
func (s *Service) SetKVLimit(ctx context.Context, who access.Principal, megabytes int) error {
	if err := owned.MayManageModels(who); err != nil {
		return err
	}
	if s.store == nil || s.files == nil {
		return owned.ErrNotFound
	}
	if megabytes < 0 || megabytes > maxKVMegabytes {
		return fault.Invalid("megabytes", "megabytes is %d, but must be from 0 to %d", megabytes, maxKVMegabytes)
	}
	value, err := json.Marshal(megabytes)
	if err == nil {
		err = s.store.SetSetting(context.WithoutCancel(ctx), store.OwnerID, kvSetting, value)
	}
	if err != nil {
		return owned.StoreError(err)
	}
	s.kvLimit.Store(int64(megabytes))
	if megabytes == 0 { // empty files too, so that no running answer stores what is not wanted any more
		return s.files.RemoveIf(func(kvfile.Stored) bool { return true })
	}
	return s.files.Evict(int64(megabytes) << 20)
}

// Prune deletes the KV caches of chats that do not exist, or are in the trash, and those beyond the limit. used
// reports whether a chat is in memory, and may not be stored yet.
func (s *Service) Prune(ctx context.Context, used func(chat string) bool) error {
	if s.store == nil || s.files == nil {
		return nil
	}
	ids, err := s.store.ConversationIDs(ctx)
	if err != nil {
		return owned.StoreError(err)
	}
	exists := map[string]bool{}
	for _, id := range ids {
		exists[id] = true
	}
	err = s.files.RemoveIf(func(file kvfile.Stored) bool { return !exists[file.Name] && !used(file.Name) })
	return errors.Join(err, s.files.Evict(s.kvLimit.Load()<<20))
}
