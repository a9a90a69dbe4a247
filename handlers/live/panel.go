package live

import (
	"context"
	"encoding/json"

	"m40-llm/handlers/access"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// Panel is what the next answer of a chat begins with, as a person left it. Each
// answer has settings of its own, which no change of the panel touches.
type Panel struct {
	setting.Settings
	Preset string `json:"preset,omitempty"` // id of the preset that the settings are compared with; it may be gone
}

// maxPresetID is how many bytes the id of a preset can have.
const maxPresetID = 64

func (p Panel) validate(system string) error {
	if len(p.Preset) > maxPresetID {
		return fault.Invalid("preset", "preset has %d bytes, and at most %d are stored", len(p.Preset), maxPresetID)
	}
	if err := fault.CheckUTF8("preset", p.Preset); err != nil {
		return err
	}
	if err := fault.CheckUTF8("system", system); err != nil {
		return err
	}
	return p.Settings.Validate()
}

// record is the panel as it is stored.
func (p Panel) record() json.RawMessage {
	text, _ := json.Marshal(p) // cannot fail: numbers and text
	return text
}

// SetPanel stores the panel of a chat, also while an answer is written. Of several who do
// so the last one wins, and the readers are sent the panel. It returns the number of the event after
// which the panel is this one.
func (c *Chat) SetPanel(ctx context.Context, who Principal, p Panel, system string) (seq int64, err error) {
	if err := c.may(who, access.ActionChange); err != nil {
		return 0, err
	}
	if err := p.validate(system); err != nil {
		return 0, err
	}
	defer c.mustExclude()()
	return c.storePanel(ctx, p, system)
}

// UsePanel is SetPanel with the values of a preset: the seed stays, and so does a system prompt, unless
// brought says that the preset of the panel before had it.
func (c *Chat) UsePanel(ctx context.Context, who Principal, p Panel, system string, brought func(ctx context.Context, preset, system string) bool) error {
	if err := c.may(who, access.ActionChange); err != nil {
		return err
	}
	defer c.mustExclude()()
	p.Seed = c.panel.Seed
	if now := c.metadata.System; now != "" {
		last, replace := c.panel.Preset, false
		_ = c.commit(ctx, func(ctx context.Context) error { // without mu: the store may be slow
			replace = brought(ctx, last, now)
			return nil
		})
		if !replace {
			system = now
		}
	}
	if err := p.validate(system); err != nil {
		return err
	}
	_, err := c.storePanel(ctx, p, system)
	return err
}

// storePanel is SetPanel for who has the slot and mu.
func (c *Chat) storePanel(ctx context.Context, p Panel, system string) (seq int64, err error) {
	switch {
	case c.dropped:
		return 0, owned.ErrNotFound
	case c.service.ctx.Err() != nil:
		return 0, owned.ErrClosed
	}
	if change := c.panelChange(p, system); change != nil && c.started {
		err := c.commit(ctx, func(ctx context.Context) error {
			_, err := c.messages.UpdateConversation(ctx, c.owner, c.id, change)
			return err
		})
		if err != nil {
			return 0, owned.StoreError(err)
		}
	}
	c.setPanel(p, system)
	return c.readers.seq, nil
}

// panelChange is what makes p and system the panel that is stored; nil if they are it.
func (c *Chat) panelChange(p Panel, system string) store.Change {
	record := p.record()
	if string(record) == string(c.panel.record()) && system == c.metadata.System {
		return nil
	}
	return func(m *store.Metadata) { m.System, m.Settings = system, record }
}

// setPanel makes a panel that is stored the one of the chat, and publishes it if it is
// another one.
func (c *Chat) setPanel(p Panel, system string) {
	if c.panelChange(p, system) == nil {
		return
	}
	c.panel, c.metadata.System = p, system
	if !c.started {
		return
	}
	c.readers.clearPanels()
	c.publish(Event{Type: EventPanel, Panel: &p, Text: system})
}

// loadPanel reads the panel from the metadata. A chat from before panels were stored gets
// what its last answer was made with.
func (c *Chat) loadPanel() {
	stored := c.metadata
	c.panel = Panel{Settings: setting.Default()}
	for _, t := range c.branch {
		if t.Answer != nil && !t.Answer.Rewritten {
			c.panel.Settings, c.metadata.System = t.Answer.Settings, t.Answer.System
			c.panel.Seed = -1
		}
	}
	p := Panel{Settings: setting.Default()}
	if len(stored.Settings) == 0 || string(stored.Settings) == "null" || json.Unmarshal(stored.Settings, &p) != nil || p.validate(stored.System) != nil {
		return
	}
	c.panel, c.metadata.System = p, stored.System
}
