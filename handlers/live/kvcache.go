package live

import (
	"cmp"

	"m40-llm/handlers/access"
	"m40-llm/handlers/disk"
	"m40-llm/infer"
)

// kvFile returns the file for the KV cache of the chat, which exists then; nil: there is none.
func (c *Chat) kvFile() *infer.KVFile {
	if c.temporary {
		return nil
	}
	return c.service.Disk.KVFile(c.id)
}

// KVCache describes the stored KV cache of a chat.
func (c *Chat) KVCache(who Principal) (k disk.KVCache, err error) {
	if err := c.may(who, access.ActionRead); err != nil || c.temporary {
		return k, err
	}
	status := c.service.engine.Status()
	model := cmp.Or(c.model(), status.Model.Name)
	loaded := status.Of(model)
	return c.service.Disk.KVCache(c.id, model, func(key string) bool { return loaded == nil || key == loaded.Cache.Key })
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
	return c.service.Disk.RemoveKVFile(c.id)
}
