package states

import (
	"time"

	"m40-llm/web"
)

// day is when everything in the storybook happens.
var day = time.Date(2026, 3, 14, 15, 9, 0, 0, time.UTC)

// engine is one that has loaded the built-in model.
func engine() web.Engine {
	return web.Engine{
		State: "ready", StateText: "ready", ID: "guide", Name: "guide", Tag: "demo", Demo: true, Model: "guide, 14 M parameters, Q8_0",
		Device: "AMD EPYC, 2 threads", Hardware: "CPU", Queue: "empty", Cache: "0.9 MB of 67.1 MB used", Rate: "31.2", Summary: "guide · ready", Context: 1024,
		Ready: "Ready in 0.2 s. No download needed.", Headline: "guide", Intro: "A tiny model with 14 million parameters, here so that you can try the controls. It is good at short stories and jokes, and often wrong about facts.",
		TooLongFirst: "Shorten the message, or choose a model with a longer context.", TooLong: "Shorten the message, or fork the chat further up.",
	}
}

func models() []web.ModelRow {
	return []web.ModelRow{
		{Name: "guide", Family: "llama", Parameters: "14 M", Quant: "Q8_0", Size: "15.2 MB", Context: "1,024", State: "in use"},
		{Name: "qwen3-8b", Family: "qwen3", Parameters: "8.2 B", Quant: "Q4_K_M", Size: "5.03 GB", Context: "40,960"},
		{Name: "qwen3-30b", Family: "qwen3moe", Experts: "8 of 128 experts", Parameters: "30.5 B", Quant: "Q4_K_M", Size: "18.6 GB", Context: "40,960", State: "loading"},
		{Name: "broken", Error: "the file ends after 1.2 GB of 4.9 GB; download it again"},
	}
}

func picker() web.Picker { return web.Picker{Version: 1, Loaded: "guide", Rows: models()} }

func rail() web.Rail {
	return web.Rail{Current: "one", Now: day, Folders: []web.Folder{{Name: "Recipes", Chats: 2}}, Older: "x", Rows: []web.ConversationRow{
		{ID: "two", Title: "Names for a boat", At: day.Add(-time.Hour), Pinned: true},
		{ID: "one", Title: "A story about a fox", Marked: []web.Passage{{Text: "A story about a "}, {Text: "fox", Found: true}}, At: day},
		{ID: "three", Title: "A very long title of a chat that does not fit into the width of the rail", At: day.Add(-time.Minute), Live: true},
		{ID: "four", Title: "Bread", At: day.Add(-26 * time.Hour), Folder: "Recipes"},
		{ID: "five", Title: "Soup", At: day.Add(-27 * time.Hour), Folder: "Recipes"},
		{ID: "six", Title: "Old letters", At: day.Add(-40 * 24 * time.Hour)},
	}}
}

// chat is a page with one stored chat.
func chat() web.Page {
	return web.Page{Chat: "one", Title: "A story about a fox", Engine: engine(), Picker: picker(), Rail: rail(), Once: "x", MaxSeed: 999_999, Presets: []web.Preset{{ID: "balanced", Name: "Balanced", Builtin: true}},
		Params: []web.Param{
			{Key: "temperature", Label: "Temperature", Hi: 2, Step: 0.01, Digits: 2, Off: "always the likeliest", Default: 0.7, FieldHi: 2, About: "Higher: less likely tokens more often"},
			{Key: "top_k", Label: "Top-k", Lo: 1, Hi: 1000, Step: 1, Logarithmic: true, Off: "off", Default: 40, FieldHi: 1000, About: "Keeps the likeliest tokens"},
			{Key: "top_p", Label: "Top-p", Hi: 1, Step: 0.01, Digits: 2, OffAt: 1, Off: "off", Default: 0.95, FieldHi: 1, About: "Keeps a share of the probability"},
		}}
}

// empty is a page without a chat, after change.
func empty(change func(*web.Page)) web.Page {
	p := chat()
	p.Chat, p.Title, p.Rail.Current = "", "New chat", ""
	change(&p)
	return p
}

func turns() []web.Turn {
	return []web.Turn{
		{ID: 1, You: true, At: day, Text: "Tell me a story about a fox."},
		{ID: 2, Speaker: "guide", At: day, HTML: "<p>This is the story of <em>Sprout</em>, a young fox who lived by the river.</p>", Notes: "12 tokens · stopped by you"},
		{ID: 3, You: true, Author: "Wanda", At: day, Text: "And then?"},
		{ID: 4, Speaker: "guide", At: day, Error: "The device failed. It was opened again; try again.", Last: true},
	}
}

// rendered are the states that the server renders.
func rendered() []State {
	list := []State{
		{Name: "chat-empty-newcomer", Component: web.Playground(empty(func(p *web.Page) { p.Newcomer, p.Rail.Rows, p.Rail.Folders = true, nil, nil }))},
		{Name: "chat-empty", Component: web.Playground(empty(func(*web.Page) {}))},
		{Name: "chat-empty-loading", Component: web.Playground(empty(func(p *web.Page) {
			p.Engine.State, p.Engine.StateText, p.Engine.Loading, p.Engine.Amount = "loading", "loading, 65 %", 65, "3.2 of 4.9 GB"
			p.Engine.Ready, p.Engine.Headline, p.Engine.Intro = "Loading the model.", "Loading guide", "A message sent now is kept, and answered as soon as the model is there."
		}))},
		{Name: "chat-empty-failed", Component: web.Playground(empty(func(p *web.Page) {
			p.Engine.State, p.Engine.StateText, p.Engine.Error = "failed", "failed", "The model needs 5.0 GB of memory, and 3.1 GB are free. Choose a smaller one, or close other programs."
			p.Engine.Ready, p.Engine.Headline, p.Engine.Intro = "Not ready.", "No model is loaded", "Choose another one, or download one. Until then nothing can be answered."
		}))},
		{Name: "chat-warnings", Component: web.Playground(empty(func(p *web.Page) {
			p.Space, p.Engine.Trouble, p.Engine.Notice, p.Picker.Chosen = "Only 212 MB of the disk are free: new messages are refused at 64 MB.", "The engine ended and was started again.", "This model has no chat template.", "gone-8b"
		}))},
		{Name: "chat-refused", Component: web.Playground(empty(func(p *web.Page) {
			p.Draft, p.Problem = "A message that could not be sent.", web.Problem{Title: "The message was not sent", Message: "Too many chats are being answered at once. Wait for one to end."}
		}))},
		{Name: "chat-without-scripts", Component: web.Playground(func() web.Page { p := chat(); p.Turns, p.Older = turns(), true; return p }())},
		{Name: "rail-search", Component: web.Playground(empty(func(p *web.Page) {
			p.Rail.Query, p.Rail.Rows = "fox", []web.ConversationRow{{ID: "one", Title: "A story about a fox", At: day}, {ID: "two", Title: "Names for a boat", At: day, Hit: []web.Passage{{Text: "… the Red "}, {Text: "Fox", Found: true}, {Text: ", or the …"}}, Message: 3}}
		}))},
		{Name: "rail-nothing-found", Component: web.Playground(empty(func(p *web.Page) { p.Rail.Query, p.Rail.Rows, p.Rail.Older = "zebra", nil, "" }))},
		{Name: "rail-archive", Component: web.Playground(empty(func(p *web.Page) {
			p.Rail.Archived, p.Rail.Rows, p.Rail.Older = true, []web.ConversationRow{{ID: "six", Title: "Old letters", At: day, Archived: true}}, ""
		}))},

		{Name: "login", Component: web.Login(web.LoginForm{})},
		{Name: "login-passphrase-wrong", Component: web.Login(web.LoginForm{Passphrases: true, ByName: true, Name: "anna", Problem: "Name or passphrase is wrong."})},
		{Name: "login-code-wrong", Component: web.Login(web.LoginForm{Problem: "This code is wrong, or was used already."})},
		{Name: "login-link", Component: web.Login(web.LoginForm{Link: "secret"})},
		{Name: "message", Component: web.Message("There is no such page", "The address may be misspelt.")},

		{Name: "activity", Component: web.ActivityPage(web.Activity{Engine: engine(), Manages: true, Others: "2 answers being written", Answers: []web.ActiveAnswer{
			{ID: 1, Who: "You", Own: true, Kind: "chat", Chat: "one", State: "writing", Facts: "writes · 120 tokens · 31.2 tok/s · for 12 s · guide"},
			{ID: 2, Who: "Anna", Kind: "program with the key “script”", State: "waiting", Facts: "waits · for 3 s · guide"}}})},
		{Name: "activity-none", Component: web.ActivityPage(web.Activity{Engine: engine()})},
		{Name: "not-shared", Component: web.NotShared()},
	}
	return append(append(append(list, ofModels()...), ofPeople()...), ofShares()...)
}

// ofModels are the states of the page Models.
func ofModels() []State {
	page := func(change func(*web.Models)) web.Models {
		m := web.Models{Manages: true, Engine: engine(), Picker: picker(), Rows: models(), Folder: "/home/anna/models", Taken: "26.1 GB in 6 files", Free: "212 GB free",
			Memory: []web.DeviceMemory{
				{Device: "Tesla M40 24GB", Taken: "8.4 GB of 24 GB are taken by models or planned for them, 15.6 GB are free",
					Parts: []web.MemoryPart{
						{Kind: "weights", Share: 0.21, Title: "qwen3-8b-q4_k_m: 5.1 GB of weights"},
						{Kind: "cache", From: 0.21, Share: 0.09, Title: "qwen3-8b-q4_k_m: up to 2.2 GB of KV cache"},
						{Kind: "work", From: 0.3, Share: 0.01, Title: "qwen3-8b-q4_k_m: 210 MB of workspace"},
						{Kind: "gap", From: 0.308, Share: 0.002},
						{Kind: "weights", From: 0.31, Share: 0.037, Title: "bge-m3-f16: 880 MB of weights"},
						{Kind: "work", From: 0.347, Share: 0.003, Title: "bge-m3-f16: 70 MB of workspace"}},
					Models: []web.LoadedMemory{
						{Name: "qwen3-8b-q4_k_m", Facts: "5.1 GB of weights, up to 2.2 GB of KV cache, 210 MB of workspace"},
						{Name: "bge-m3-f16", Facts: "880 MB of weights, 70 MB of workspace"}}},
				{Device: "main memory", Taken: "0 B of 58 GB are taken by models or planned for them, 58 GB are free; other programs have 4 GB",
					Parts: []web.MemoryPart{{Kind: "other", From: 0.94, Share: 0.06, Title: "other programs: 4 GB"}}}}}
		change(&m)
		return m
	}
	found := web.Found{Name: "Qwen/Qwen3-8B-GGUF:Q4_K_M", File: "Qwen3-8B-Q4_K_M.gguf", Quant: "Q4_K_M", Size: "5.03 GB", Bytes: "5030000000", Verdict: "fits", Fits: true, Verified: true,
		Sums: []web.Sum{{Of: "memory", Needs: "6.1 GB", Free: "12 GB", Share: 51}, {Of: "disk", Needs: "5.03 GB", Free: "212 GB", Share: 2}}}
	large := found
	large.Verdict, large.Fits, large.Off, large.Sums = "does not fit", false, "It needs 42 GB of memory, and 12 GB are free.", []web.Sum{{Of: "memory", Needs: "42 GB", Free: "12 GB", Over: true, Share: 100}}
	choices := found
	choices.Choices = []web.Quantisation{
		{Name: "Qwen/Qwen3-8B-GGUF:Q8_0", Quant: "Q8_0", Size: "8.71 GB", Context: "16,384", On: "AMD EPYC, 2 threads", Speed: "about 5"},
		{Name: found.Name, Quant: "Q4_K_M", Size: "5.03 GB", Context: "40,960", On: "AMD EPYC, 2 threads", Speed: "about 9", Chosen: true},
		{Name: "Qwen/Qwen3-8B-GGUF:F16", Quant: "F16", Size: "16.4 GB", Problem: "It needs 17 GB of memory, and 12 GB are free."}}
	details := web.ModelDetails{ModelRow: models()[1], Facts: []web.Fact{{Name: "Architecture", Value: "qwen3"}, {Name: "Layers", Value: "36"}}, Types: []web.TensorType{{Type: "Q4_K", Tensors: "216", Weights: "6.9 B", Size: "3.9 GB"}}, Metadata: []web.Fact{{Name: "general.name", Value: "Qwen3 8B"}}}
	deleting := details
	deleting.Deleting = true
	return []State{
		{Name: "models", Component: web.ModelsPage(page(func(*web.Models) {}))},
		{Name: "models-downloads", Component: web.ModelsPage(page(func(m *web.Models) {
			m.Downloads = []web.Download{
				{File: "a", State: "running", Share: 62, Amount: "5.57 of 8.99 GB", Rate: "11.4 MB/s", Left: "5 min left", Title: "Qwen3-14B", Quant: "Q4_K_M"},
				{File: "b", State: "paused", Share: 20, Phase: "paused", Amount: "1 of 4.9 GB", Title: "Llama-3.1-8B", Quant: "Q4_K_M"},
				{File: "c", State: "failed", Share: 80, Amount: "4 of 5 GB", Title: "Gemma-2-9B", Quant: "Q4_K_M", Error: "The server closed the connection. What is here is kept."},
				{File: "d", State: "done", Share: 100, Title: "Phi-4", Quant: "Q4_K_M", Model: "phi-4", Note: "Its SHA-256 is right."}}
		}))},
		{Name: "models-found", Component: web.ModelsPage(page(func(m *web.Models) { m.Find = web.Find{Query: found.Name, Found: &found} }))},
		{Name: "models-quantisations", Component: web.ModelsPage(page(func(m *web.Models) { m.Find = web.Find{Query: found.Name, Found: &choices} }))},
		{Name: "models-found-too-large", Component: web.ModelsPage(page(func(m *web.Models) { m.Find = web.Find{Query: found.Name, Found: &large} }))},
		{Name: "models-not-found", Component: web.ModelsPage(page(func(m *web.Models) {
			m.Find = web.Find{Query: "nobody/nothing", Problem: "There is no repository nobody/nothing."}
		}))},
		{Name: "models-details", Component: web.ModelsPage(page(func(m *web.Models) { m.Shown, m.Open = &details, true }))},
		{Name: "models-delete", Component: web.ModelsPage(page(func(m *web.Models) { m.Shown, m.Open = &deleting, true }))},
		{Name: "models-setup", Component: web.ModelsPage(page(func(m *web.Models) {
			m.Setup = &web.Setup{Context: "8192", Cache: "q8_0", Draft: "auto", Caches: []string{"f16", "auto", "q8_0", "q8_0/q4_0", "q4_0", "f32"}, Now: "The context is 8,192 tokens now, on 2 threads.", KeepAlive: "A model that nobody uses for 30 min is unloaded (--keep-alive).",
				Warning: "2 answers are being written: the model is loaded again when they have ended, and new ones wait for it.",
				Problem: "The last change was undone: The model needs 14 GB, 12 GB are free; use a smaller model or a shorter --ctx."}
		}))},
		{Name: "models-suggested", Component: web.ModelsPage(page(func(m *web.Models) {
			m.Rows, m.Suggestions = models()[:1], []web.Suggestion{
				{Name: "Qwen/Qwen3-8B-GGUF:Q4_K_M", Title: "Qwen3 8B", Facts: "Qwen 3 · 8 B parameters · Q4_K_M · 5.0 GB · Apache 2.0", Fits: "fits with a context of 32,768, on the CPU"},
				{Name: "Qwen/Qwen3-4B-GGUF:Q4_K_M", Title: "Qwen3 4B", Facts: "Qwen 3 · 4 B parameters · Q4_K_M · 2.5 GB · Apache 2.0", Fits: "fits with a context of 32,768, on the CPU"}}
		}))},
		{Name: "models-of-another", Component: web.ModelsPage(page(func(m *web.Models) { m.Manages = false }))},
	}
}

// ofPeople are the states of the pages of people and of presets.
func ofPeople() []State {
	account := func(change func(*web.Account)) web.Account {
		a := web.Account{ID: "anna", Name: "Anna", Manages: true, Limits: web.PersonLimits{AtOnce: 2, Answers: 50}, MinPassphrase: 12,
			Devices: []web.Credential{{ID: 1, Name: "Firefox on Linux", Use: "last seen", Used: time.Date(2026, 3, 9, 18, 0, 0, 0, time.UTC), Since: time.Date(2026, 3, 3, 18, 0, 0, 0, time.UTC)}}, Keys: []web.Credential{{ID: 2, Name: "script", Since: time.Date(2026, 3, 9, 18, 0, 0, 0, time.UTC)}}}
		change(&a)
		return a
	}
	rows := []web.DiffRow{
		{Key: "temperature", Label: "Temperature", Is: "1.10", Was: "0.70", Raw: "1.1", Differs: true, Scaled: true, At: 0.55, From: 0.35},
		{Key: "top_k", Label: "Top-k", Is: "40", Was: "40", Raw: "40"}}
	presets := func(change func(*web.Presets)) web.Presets {
		p := web.Presets{List: []web.Preset{{ID: "balanced", Name: "Balanced", Builtin: true}, {ID: "mine", Name: "Wild"}}, Shown: web.Preset{ID: "mine", Name: "Wild", Base: "Balanced", Rows: rows}}
		change(&p)
		return p
	}
	return []State{
		{Name: "people", Component: web.PeoplePage(web.People{List: []web.Account{account(func(*web.Account) {})}})},
		{Name: "people-name-refused", Component: web.PeoplePage(web.People{Name: "Anna", Problem: "There is an Anna already.", List: []web.Account{account(func(*web.Account) {})}})},
		{Name: "account", Component: web.AccountPage(account(func(*web.Account) {}))},
		{Name: "account-code", Component: web.AccountPage(account(func(a *web.Account) {
			a.Invitation = &web.Invitation{Code: "FOXY-2468", Links: []web.InvitationLink{{Address: "http://192.168.1.40:8080/login#secret"}}}
		}))},
		{Name: "account-new-key", Component: web.AccountPage(account(func(a *web.Account) { a.NewKey = "m40-0123456789abcdef" }))},
		{Name: "account-own", Component: web.AccountPage(account(func(a *web.Account) {
			a.Own, a.HasPassphrase, a.PassphraseProblem = true, true, "The new passphrase has 4 characters, and needs 12."
		}))},
		{Name: "presets", Component: web.PresetsPage(presets(func(*web.Presets) {}))},
		{Name: "presets-refused", Component: web.PresetsPage(presets(func(p *web.Presets) {
			p.Shown.Problem, p.Shown.Wrong = "The preset was not saved.", map[string]string{"temperature": "must be from 0 to 5"}
		}))},
		{Name: "presets-deleted", Component: web.PresetsPage(presets(func(p *web.Presets) { p.Deleted = &web.Preset{ID: "gone", Name: "Gone"} }))},
	}
}

// ofShares are the states of sharing a chat and of reading it.
func ofShares() []State {
	share := func(change func(*web.Sharing)) web.Sharing {
		s := web.Sharing{Chat: "one", Title: "A story about a fox", Port: 8080, Shares: []web.Share{{ID: 1, What: "from the beginning, live", Links: []string{"http://192.168.1.40:8080/s/abc"}, Followers: 2, Live: true, Ends: time.Date(2026, 3, 9, 18, 0, 0, 0, time.UTC), Accepts: true}}}
		change(&s)
		return s
	}
	read := func(change func(*web.SharedChat)) web.SharedChat {
		c := web.SharedChat{Token: "abc", Title: "A story about a fox", Live: true, Ends: time.Date(2026, 3, 9, 18, 0, 0, 0, time.UTC), Turns: []web.SharedTurn{
			{ID: 1, You: true, At: day, Text: "Tell me a story about a fox."},
			{ID: 2, At: day, Speaker: "guide", HTML: "<p>This is the story of Sprout.</p>", Notes: "8 tokens, 31 tok/s"}}, WriteAccess: web.WriteAccess{Accepts: true}}
		change(&c)
		return c
	}
	return []State{
		{Name: "share", Component: web.SharePage(share(func(*web.Sharing) {}))},
		{Name: "share-none", Component: web.SharePage(share(func(s *web.Sharing) { s.Shares = nil }))},
		{Name: "share-asked", Component: web.SharePage(share(func(s *web.Sharing) {
			s.Shares[0].Writers = []web.Writer{{ID: 1, Name: "Wanda", Asks: true}, {ID: 2, Name: "Will"}}
		}))},
		{Name: "share-temporary", Component: web.SharePage(share(func(s *web.Sharing) { s.Shares, s.Temporary = nil, true }))},
		{Name: "reader", Component: web.SharedPage(read(func(*web.SharedChat) {}))},
		{Name: "reader-live", Component: web.SharedPage(read(func(c *web.SharedChat) { c.Turns[1].Running, c.Turns[1].Text, c.Turns[1].Notes = true, "He lived", "" }))},
		{Name: "reader-writes", Component: web.SharedPage(read(func(c *web.SharedChat) { c.WriteAccess.State, c.WriteAccess.Name = "writes", "Wanda" }))},
		{Name: "reader-form", Component: web.WritePage(web.WriteForm{Token: "abc", Title: "A story about a fox", WriteAccess: web.WriteAccess{Accepts: true}, Problem: "The name is missing."})},
	}
}
