// Package quota counts what is used of a day: answers, the tokens that are written in them, and bytes of pictures. A day ends at
// midnight where the server is. The package knows neither people nor HTTP.
package quota

import (
	"context"
	"fmt"
	"sync"
	"time"

	"m40-llm/infer/fault"
	"m40-llm/infer/units"
	"m40-llm/web/lang"
)

// Limits are those of one day; 0: there is none.
type Limits struct {
	Answers, Tokens int
	Pictures        int // bytes
}

// MaxLimit is the highest limit that can be set.
const MaxLimit = 1_000_000_000

// Check returns an error if a limit cannot be set. The names are those of the fields of a form.
func (l Limits) Check() error {
	for _, field := range []struct {
		name  string
		value int
	}{{"answers", l.Answers}, {"tokens", l.Tokens}} {
		if field.value < 0 || field.value > MaxLimit {
			return fault.Invalid(field.name, "%s a day is %d, but must be from 1 to %s, or empty for no limit", field.name, field.value, units.Count(MaxLimit))
		}
	}
	return nil
}

// Times returns limits that are n times as high.
func (l Limits) Times(n int) Limits { return Limits{l.Answers * n, l.Tokens * n, l.Pictures * n} }

// Used is what was used of a day.
type Used struct {
	Day     string `json:"day"` // 2006-01-02
	Answers int    `json:"answers"`
	Tokens  int    `json:"tokens"`

	Pictures int `json:"pictures,omitempty"` // bytes
}

// Counts counts for many, each under a key of its own. It is safe for concurrent use.
type Counts struct {
	now  func() time.Time
	most int

	mu      sync.Mutex
	day     string
	used    map[string]*Used
	changed map[string]bool // since Changed was called
}

// NewCounts returns Counts of which nothing is used. They remember at most so many keys of a day: further ones are counted
// together, as one.
func NewCounts(now func() time.Time, most int) *Counts {
	return &Counts{now: now, most: most, used: map[string]*Used{}, changed: map[string]bool{}}
}

// together is the key of those that are counted together.
const together = ""

// of returns what is used under a key today, and the key that counts; the caller has mu.
func (c *Counts) of(key string) (string, *Used) {
	if day := c.now().Format(time.DateOnly); day != c.day {
		c.day = day
		clear(c.used)
		clear(c.changed)
	}
	if u := c.used[key]; u != nil {
		return key, u
	}
	if len(c.used) >= c.most {
		key = together
	}
	if c.used[key] == nil {
		c.used[key] = &Used{Day: c.day}
	}
	return key, c.used[key]
}

// Whose has the messages for limits of one kind of people that are reached.
type Whose struct{ usedUp, pictures string }

// The kinds of people with limits of their own: a single one, and all visitors together.
var (
	Yours = Whose{"your %s of today %s used up; there are new ones in %s",
		"your %s for pictures of today have %s left, and this one has %s; there are new ones in %s"}
	OfVisitors = Whose{"for all visitors together, the %s of today %s used up; there are new ones in %s",
		"for all visitors together, the %s for pictures of today have %s left, and this one has %s; there are new ones in %s"}
)

// Begin counts an answer. It returns an error that says when to come back if a limit is reached.
func (c *Counts) Begin(key string, whose Whose, l Limits) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, u := c.of(key)
	switch {
	case l.Answers > 0 && u.Answers >= l.Answers:
		return c.usedUp(whose, l.Answers, "%s answer", "%s answers")
	case l.Tokens > 0 && u.Tokens >= l.Tokens:
		return c.usedUp(whose, l.Tokens, "%s token", "%s tokens")
	}
	u.Answers++
	c.changed[key] = true
	return nil
}

// Token counts a token of an answer. It returns an error like Begin's, for a token beyond the limit.
func (c *Counts) Token(key string, whose Whose, l Limits) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, u := c.of(key)
	if l.Tokens > 0 && u.Tokens >= l.Tokens {
		return c.usedUp(whose, l.Tokens, "%s token", "%s tokens")
	}
	u.Tokens++
	c.changed[key] = true
	return nil
}

// Picture counts a picture file of so many bytes. It returns an error like Begin's if the limit has not so many left.
func (c *Counts) Picture(key string, whose Whose, bytes int, l Limits) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, u := c.of(key)
	if left := l.Pictures - u.Pictures; l.Pictures > 0 && bytes > left {
		size := func(n int) string { return units.ByteSize(int64(n)) }
		return c.refusal(whose.pictures, size(l.Pictures), size(left), size(bytes))
	}
	u.Pictures += bytes
	c.changed[key] = true
	return nil
}

// usedUp returns the error for a limit that is reached.
func (c *Counts) usedUp(whose Whose, limit int, one, other string) error {
	are := "are"
	if limit == 1 {
		are = "is"
	}
	return c.refusal(whose.usedUp, counted(limit, one, other), are)
}

// refusal returns an error with a message whose last argument is how long the day lasts.
func (c *Counts) refusal(format string, args ...any) error {
	wait := c.untilMidnight()
	return &fault.Error{
		Code:       fault.CodeDayUsed,
		Message:    fmt.Sprintf(format, append(args, inWords(wait))...),
		RetryAfter: int((wait + time.Second - 1) / time.Second),
	}
}

// untilMidnight returns how long the day lasts.
func (c *Counts) untilMidnight() time.Duration {
	now := c.now()
	y, m, d := now.Date()
	return time.Date(y, m, d+1, 0, 0, 0, 0, now.Location()).Sub(now)
}

// Left is what is left of a day.
type Left struct {
	Answers, Tokens int
	Of              Limits
}

// Left returns what is left of today under a key.
func (c *Counts) Left(key string, l Limits) Left {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, u := c.of(key)
	return Left{max(0, l.Answers-u.Answers), max(0, l.Tokens-u.Tokens), l}
}

// Text says what is left; it is empty without a limit.
func (l Left) Text(ctx context.Context) string {
	answers := lang.N(ctx, l.Of.Answers, "%s of %s answer", "%s of %s answers", lang.Count(ctx, l.Answers), lang.Count(ctx, l.Of.Answers))
	tokens := lang.N(ctx, l.Of.Tokens, "%s of %s token", "%s of %s tokens", lang.Count(ctx, l.Tokens), lang.Count(ctx, l.Of.Tokens))
	switch {
	case l.Of.Answers > 0 && l.Of.Tokens > 0:
		return lang.T(ctx, "%s and %s left today", answers, tokens)
	case l.Of.Answers > 0:
		return lang.T(ctx, "%s left today", answers)
	case l.Of.Tokens > 0:
		return lang.T(ctx, "%s left today", tokens)
	}
	return ""
}

// Restore sets what is used under a key, as Changed returned it. That of another day counts for nothing.
func (c *Counts) Restore(key string, u Used) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, now := c.of(key); now.Day == u.Day {
		*now = u
	}
}

// Changed returns what is used under the keys for which something was counted since the last call.
func (c *Counts) Changed() map[string]Used {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := map[string]Used{}
	for key := range c.changed {
		list[key] = *c.used[key]
	}
	clear(c.changed)
	return list
}

// counted returns "1 answer" or "1,000 answers".
func counted(n int, one, other string) string {
	if n == 1 {
		other = one
	}
	return fmt.Sprintf(other, units.Count(n))
}

// inWords returns how long something takes, rounded up to minutes, or to hours beyond two of them.
func inWords(d time.Duration) string {
	minutes := max(1, int((d+time.Minute-1)/time.Minute))
	if minutes > 120 {
		return counted((minutes+59)/60, "%s hour", "%s hours")
	}
	return counted(minutes, "%s minute", "%s minutes")
}
