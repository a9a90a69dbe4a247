package inspect

import (
	"slices"
	"sync"

	"m40-llm/handlers/live"
)

// Limits of the rows that are cached: of the answers in view, so that a slider which is moved does not
// read them from the store again each time. Together they take at most some 24 MB.
const (
	cachedAnswers = 4
	cachedTokens  = 8192 // of one answer
)

// rowsCache has what is stored of the answers that were looked at last, the last one at the end.
type rowsCache struct {
	mu   sync.Mutex
	list []cachedRows
}

type cachedRows struct {
	key  live.AnswerKey
	rows *live.StoredAnswer
}

// Find returns an answer; nil if it is not cached.
func (c *rowsCache) Find(key live.AnswerKey) *live.StoredAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, cached := range c.list {
		if cached.key == key {
			c.list = append(append(c.list[:i:i], c.list[i+1:]...), cached)
			return cached.rows
		}
	}
	return nil
}

// Add caches an answer that has ended, unless it is too long.
func (c *rowsCache) Add(key live.AnswerKey, a *live.StoredAnswer) {
	if len(a.Rows) > cachedTokens {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = slices.DeleteFunc(c.list, func(cached cachedRows) bool { return cached.key == key })
	c.list = append(c.list, cachedRows{key, a})
	if len(c.list) > cachedAnswers {
		c.list = c.list[1:]
	}
}

// forget drops the answers of a chat.
func (c *rowsCache) forget(chat string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	others := c.list[:0:0]
	for _, cached := range c.list {
		if cached.key.Chat != chat {
			others = append(others, cached)
		}
	}
	c.list = others
}
