"""Facts: what the playground shows of each token and how one steers an answer, with the words of the page."""
TEXT = """
== token-view
T the token view
T the tokens of an answer
V see the tokens of an answer
V colour an answer by its tokens
V open the token view
? what does the token view show
? where do i see the probability of each token
? how do i switch on the tokens
? what does the key t do
? what is the button tokens for
- The token view colours an answer by the probability, the rank or the entropy of each token. Press `t` at the answer.
- Press `t` at an answer, and each of its tokens gets a colour: by probability, by rank or by entropy.
- It shows each token of an answer in a colour that says how sure the model was of it.
+ A click on a token lists the 256 candidates that stood in its place.
+ The arrow keys walk from token to token.
+ The numbers are the model's own, over the whole vocabulary.
+ While the tokens are shown, a minimap beside the scroll bar marks where the model was unsure.
> how do i open it? | which key is it? = Press `t` at the answer, or use the tokens button below it.
> what else is in it? | and what can i do there? = You see the candidates, can go on from another one, and `m` opens the sampler microscope.
== token-colours
P the colours of the tokens
? what do the colours of the tokens mean
? why are some words coloured
? what does a dark token mean
? can colour-blind people use the token view
? what is the difference between probability, rank and entropy
- The colours say how likely each token was, which rank it had among the candidates, or how unsure the model was; you choose which.
- You choose what the colours show: the probability of the token, its rank, or the entropy of the distribution.
- Each token has a colour by its probability, its rank or its entropy, in a few steps.
+ The steps can be told apart by colour-blind eyes too.
+ Rank 1 means that the model itself liked that token best.
+ High entropy means that many tokens were nearly as likely.
> which one should i use? | which is best? = Begin with probability. Entropy shows where the model was unsure, even if it chose its favourite.
== candidates
T the list of candidates
P candidates
V see the other candidates of a token
? what else could the model have said
? how do i see what else the model could have said
? what happens when i click a token
? how many alternatives are listed
? which other words were possible
- Click a token in the token view: it lists the 256 likeliest candidates in its place, with probability, rank and id.
- In the token view a click on a token shows its 256 candidates; the arrow keys walk to the next one.
- Open the tokens with `t` and click one. The candidates are listed with their probabilities.
+ Press the number of a candidate, and the answer goes on from it.
+ They are kept for 30 days or 128 MB; both can be changed in the token view.
+ A token takes about 1.3 kB for that.
> how long are they kept? | are they stored? = Yes, for 30 days or up to 128 MB, the oldest go first. The token view says how much they take.
== microscope
T the sampler microscope
T the microscope
V open the sampler microscope
V see what each sampler did
? what does the sampler microscope show
? what does the key m do
? which sampler removed that token
? how do i see what top-k did to a token
? what did the samplers do at this token
- The sampler microscope is a table of what each sampler did at one token, from the model's distribution to the draw. Press `m` at the token.
- Press `m` at a token: a table says how many candidates each sampler kept, how much of the probability it removed, and where the seed's number fell.
- It shows each step of the sampler chain at one token: how many candidates stayed, how much probability was cut, and the draw.
+ It is computed again exactly, from the stored candidates or from one step of the model, and it says which.
+ The row of the chosen token shows how its probability moved.
> which key? | how do i open it? = Press `m` while a token is chosen in the token view.
== slider-bars
T the bars under the sliders
P the bars under a slider
P sliders that show what they cut
? what do the bars under the sliders show
? what are the little bars below top-k
? what does keeps 7 of 40 mean
? what is the grey part under a slider
? how do i see what a slider cuts
- The bars are the candidates of the newest token, and grey ones are cut. "keeps 7 of 40, 0.93" means that 7 candidates with 0.93 of the probability stay.
- Under top-k, top-p, min-p, typical-p and temperature you see the candidates of the token; what the slider would cut is grey.
- They show what the slider cuts: each bar is a candidate, the grey ones would go.
+ They change while the answer is written.
+ Move the slider and watch which candidates would go.
+ With Alt and an arrow key the slider goes to the next value that cuts another candidate.
> of which token? | which token is it? = Of the newest one while I write, and later of any token that you choose.
== old-answers
T a slider over an old answer
P verdicts on old answers
V see what another setting would have changed
? what happens when i move a slider over an old answer
? why are tokens struck out when i move a slider
? what would a lower temperature have changed
? how do i judge an old answer under new settings
? where would the seed have drawn another token
- With the tokens shown, move a slider: tokens that it would have made impossible are struck out, and the page says where the seed would first have drawn another one.
- Moving a slider marks at once which tokens of the old answer would have become impossible, and where the draw would first have gone elsewhere.
- The playground judges the old answer under the new setting, without running the model: impossible tokens are struck out.
+ The model does not run for that; the stored candidates suffice.
+ Show the tokens with `t` first.
> does the model run again? | is that slow? = No, it is computed from the stored candidates, so it is there at once.
== fork-token
T a fork at a token
V fork an answer at a token
V continue from another token
V choose another token
V change one word and let the model go on
? can i continue from another token
? what does fork at a token mean
? how do i take another candidate
? what do the keys 1 to 9 do
? can i type my own text in the middle of an answer
- Yes: choose another candidate in the token view, or press its number, and the answer goes on from there as another version.
- Click a token in the token view, then choose another candidate or type a text: the answer goes on from there.
- A fork at a token keeps the answer up to that token, takes another one there, and lets the model go on. The old version stays.
+ Up to that token both versions have exactly the same tokens.
+ The keys 1 to 9 take that candidate.
+ You find both versions in the tree of branches.
> is the old answer lost? | do i lose the old one? = No, both are versions of the same answer, and you can switch between them.
== tree
T the tree of a chat
T the tree of branches
V see all branches of a chat
V delete a branch
? what is the tree of a chat
? what does the key b do
? where are my branches
? how do i remove a branch
? what does branches show
- The tree lists all branches of the chat with the log probability that the model gave to each path. Press `b` to open it.
- Press `b` for Branches: the tree of the chat. The arrows walk it, Enter shows a branch, and Delete twice deletes one.
- It shows every version of every answer as a tree, with how likely the model found each path.
+ The arrows walk the tree, and Enter shows a branch.
+ Delete, pressed twice, removes a branch.
> how do i delete one? | can i remove a branch? = Choose it in the tree and press Delete twice.
== contact-sheet
T a contact sheet
T the contact sheet
V write many answers side by side
V compare many seeds at once
V try several values of a slider at once
? what is a contact sheet
? what does the key g do
? how do i get many answers to one question
? what is the grid beside send
? how many answers can a contact sheet have
- A contact sheet is up to 64 answers to one message side by side, over seeds and the values of one or two sliders. Press `g` at a message.
- Press `g` at a message: the contact sheet writes up to 64 answers with other seeds and settings at the same time, and you keep the best.
- It writes many answers to one message at once, in a grid of seeds and slider values.
+ What an answer has in common with the first one is grey, and a mark shows where it parts from it.
+ The prompt is read only once for all of them.
+ Keep one, and it becomes the answer of the chat.
+ Each cell is exactly what its seed and settings give alone.
> how many? | how many at most? = Up to 64.
> and then? | what do i do with them? = Keep the one you like; it becomes the answer in the chat.
== blind
T the blind comparison
T a blind test
V compare two models blind
V compare two presets without seeing the names
? how do i compare two models without knowing which is which
? what is a blind comparison
? what is a/b testing here
? how can i vote for an answer
? where do i find the blind comparison
- A blind comparison shows two answers without names; you vote with 1, 2 or 3, and only then you see which is which. It is on the presets page.
- Open the presets page and choose the blind comparison: two presets or two models answer the same text, and you vote before you see the names.
- Two presets, or two models, answer the same text with the same seed, in an order drawn by lot. You vote, then the names appear.
+ Press 1 if A is better, 2 if B is better, and 3 if they are equal.
+ Your votes are counted in a leaderboard of your own.
> which keys? | how do i vote? = 1 means A is better, 2 means B is better, 3 means equal.
== leaderboard
T the leaderboard
P your votes
V see which preset wins
? what is the leaderboard
? where are my votes counted
? what is the wilson interval
? how do i reset my votes
- The leaderboard counts your votes of blind comparisons: how often each preset or model won, with an interval that says how sure that is.
- It lists the presets and models by the votes you gave them blind, with counts and a 95 % interval.
- It is your own list of winners: each blind vote counts, and the Wilson interval says how much the votes can tell.
+ With few votes the interval is wide.
+ The votes can be exported and reset.
+ Nobody else sees them.
== timeline
T the timeline of an answer
P the figures of an answer
V see where the time went
? what does the timeline of an answer show
? why did this answer take so long
? where do i see the tokens per second over time
? how long did the prompt take
- The timeline shows where the time of an answer went: queue, loading, reading the prompt and writing, with tokens per second over time.
- Open the figures of an answer: they show queue, load, prefill and decode, and the tokens per second over time.
- It splits the time of an answer into waiting, loading, reading the prompt and writing.
+ It also says which share of the memory's bandwidth was used.
+ Pauses are marked there too.
== time-budget
T a time budget
P time budgets
V get an answer within a minute
V limit the time of an answer
? what is the time budget
? how do i say that it must be done in 60 seconds
? what does adds about 3 seconds mean
- A time budget sets max tokens from the measured speed, so that the answer ends within the time you give.
- Give a time budget, such as 60 seconds, and the playground works out how many tokens fit.
- The time budget turns seconds into a limit of tokens, by the speed that was measured.
+ While you type a long prompt, the page says how much later the first word comes.
== why-stopped
T the end of an answer
V go on after the end of an answer
V make the model go on
? why did the answer stop
? how do i continue a finished answer
? what ended the answer
? can i ban the end token
- Each answer says why it ended: the end token with its probability, a stop string, the token limit or the context. One click goes on from there.
- Below the answer it says how it ended, and one click goes on past the end, with the end banned in that one place.
- It may be the end token, a stop string, the limit or the context; the answer says which, and you can go on with one click.
+ The probability of the end is shown as well.
+ If the limit was the reason, raise max tokens.
== loop-guard
T the loop guard
P loops
V stop a loop
V take a repetition back
? what is the loop guard
? what happens when an answer repeats itself
? the page says that the answer repeats itself
? what does rewind do
? can it pause when it repeats
- The loop guard notices while an answer is written that it repeats itself, and says so, or pauses it if you ask for that.
- When an answer repeats itself, the page says so at once; one click takes the repetition back and goes on with a higher DRY.
- It watches for repetition: you can rewind by some tokens and go on with more DRY, as another version.
+ Rewinding makes another version, the old one stays.
+ Whether it pauses by itself is a setting.
> what is dry? | and dry? = DRY is a sampler that makes tokens less likely which would repeat a passage.
== warm-chats
T a warm chat
P warm chats
T a cold chat
V open a long chat quickly
? what is a warm chat
? what does warm or cold mean
? why does an old chat answer at once
? what is stored for a warm chat
? how much disk do warm chats take
- A warm chat has its KV cache on disk, so it goes on without reading everything again, even after a restart.
- Warm means that the keys and values of the chat are stored on disk: it answers at once when you open it again. A cold chat is read anew.
- After an answer the chat's KV cache is stored in a file; that makes it warm, and the next answer begins sooner.
+ All files together take up to 4,096 MB; the owner can change that.
+ Under Context it says whether the chat is warm or cold, and there its file can be deleted.
+ The answers are the same bits either way.
+ Temporary chats have no such file.
> how much space? | how much does it take? = At most 4,096 MB for all chats together, unless the owner changes it. 0 stores none.
== xray
T the quant x-ray
T compare models
V compare two quantisations of one model
V compare q4 with q8 token by token
V see what quantisation changed
? how do i compare q4 with q8 token by token
? what does compare models do
? what is the divergence of two models
? what is the quant x-ray
? how do i see the damage of quantisation
- Use "Compare models" in the token view: two models score the same text, and each token is coloured by how far they differ.
- "Compare models" scores prompt and answer with two models of the same vocabulary, such as Q4 and Q8, and colours each token by the Kullback-Leibler divergence.
- The quant X-ray shows, token by token, where two quantisations of a model disagree, with the mean and the worst place.
+ Both models need the same vocabulary.
+ One model is loaded after the other.
+ A button jumps to the worst token.
> what is kl? | what is the kullback-leibler divergence? = A number for how far two distributions are apart: 0 means that both models agree.
== prompt-tokens
P the tokens of the prompt
V see the tokens of the prompt
V score the prompt
? what does score the prompt do
? can i see the tokens of my own message
? how surprised was the model by my prompt
- "Score the prompt" in the token view colours the template, the system prompt and the messages before an answer, after one pass of the model.
- Press "Score the prompt" in the token view, and your own words get colours too.
- It runs the model once over the prompt and colours its tokens by how likely they were.
+ You can cancel it while it runs.
+ These scores are not stored.
== minimap
T the minimap
V jump to where the model was unsure
? what is the strip beside the scroll bar
? what does the key u do
? where was the model unsure
- The minimap beside the scroll bar shows the entropy of the tokens; a click jumps there, and `u` goes to the next unsure place.
- Press `u` while the tokens are shown, and you jump to the next token at which the model was unsure.
- It marks where the model was unsure, beside the scroll bar.
+ With Shift, `u` goes back to the one before.
== receipts
T a receipt
P receipts
V replay an answer
V repeat an answer exactly
V copy a request as curl
? how was this answer made
? what does replay do
? can i get the same answer again
? how do i copy the request as python
- Each answer has a receipt of how it was made: copy its request as curl, Python or JavaScript, or replay it.
- Replay writes the answer again and says "equal" or the first token that differs, and what has changed since.
- The receipt records model, settings and seed, so the same answer can be written again.
+ The same seed gives the same answer, whatever else the server computes.
== builtin-presets
P the built-in presets
T the model's own
T the preset "the model's own"
? which presets are built in
? what is the preset "the model's own"
? what does the preset precise do
? what is the preset creative for
? what does nothing removed mean
? which preset should i use
- Built in are Balanced, Precise, Creative, Greedy and Nothing removed; "The model's own" has what the maker of the model recommends in its file.
- "The model's own" is a preset with the settings that the model's file recommends; new chats begin with it if there is one.
- There are Balanced to start with, Precise for facts and code, Creative for stories, Greedy for the likeliest token, and Nothing removed.
+ Your own presets are kept beside them.
+ Press `p` to choose one.
+ Presets can be exported and imported as JSON.
> and the model's own? | what is the model's own? = The settings that the model's maker recommends in its file. New chats begin with them.
> can i change one? | can i edit a built-in preset? = No, save a copy under a name of its own and change that.
== keyboard-keys
P the keys
P keyboard shortcuts
T the keyboard
V use the keyboard
V work without the mouse
? which keys can i press
? which shortcuts are there
? is there a list of the keys
? what does the question mark key do
? give me the keyboard shortcuts
- Press `?` for the list: `t` shows tokens, `m` the microscope, `g` a contact sheet, `b` the branches, `r` answers again, `e` edits and `n` begins a new chat.
- The keys: `/` searches, `n` new chat, `j` and `k` walk the messages, `r` answers again, `e` edits, `c` copies, `f` forks, `t` tokens, `g` contact sheet, `b` branches, `?` this list.
- Enter sends, Shift + Enter makes a new line, Esc stops, and `?` lists all the other keys.
+ On a slider the arrows go one step, with Shift ten.
+ `[` and `]` go through the versions of an answer.
+ Single keys can be switched off in that list.
> and tokens? | which key shows the tokens? = `t`.
> how do i stop? | which key stops? = Esc.
== key-r
V answer again with the keyboard
V step through the versions of an answer
? what does the key r do
? what does the key e do
? what does the key f do
? what does the key n do
? what do the square brackets do
- `r` answers again, `e` edits, `c` copies, `f` makes a new chat from there, and `[` and `]` go through the versions.
- `n` begins a new chat, `r` writes another answer, `e` edits the message and `/` searches.
+ All keys are listed under `?`.
== attachments
P attachments
V attach a file
V add a text file to my message
? can i attach a file
? can i drop a file here
? can you read my code file
- Text and code files can be attached with the clip beside the message field, or dropped there; they become part of the message.
- Yes, text and code files: attach them or drop them on the page. They are shown folded.
- Attach a text file, and its text goes into the message, with its tokens counted.
+ Pictures do not work, only text.
+ My context is only 1,024 tokens, so keep files short for me.
== formulas
P formulas
V write a formula
? can the chat show formulas
? does it render tex
? are mathematical formulas shown
- Formulas in TeX are shown as proper mathematics; the server turns them into MathML.
- Yes, TeX formulas are rendered, without any script from outside.
+ I am not good at mathematics myself.
== context-meter
T the context meter
V see how full the context is
? how many tokens does my message have
? what is the number beside the message field
? what happens when the context is full
? why can't i send my message
- The context meter counts while you type how many tokens the next prompt has; one that does not fit cannot be sent, and the page says how many are too many.
- When the context is full, the prompt is refused with the number of tokens; nothing is cut off silently. Make the chat shorter or begin a new one.
- It counts the tokens of the next prompt, the history included.
+ My own context has 1,024 tokens.
+ Begin a new chat with a short summary, or load the model with a longer context.
== temporary
T a temporary chat
P temporary chats
V chat without storing anything
? is there a private mode
? can i have a chat that is not saved
? what is a temporary chat
- A temporary chat is never stored; it is gone when you close it.
- Begin a temporary chat: it is in no database, cannot be shared, and is gone afterwards.
+ Ordinary chats are stored on this machine.
== thinking
T thinking
T reasoning
V switch thinking off
? what is the folded block before the answer
? why does the model think first
? can i hide the thoughts
- What a model thinks before it answers is one folded block above the answer; open it if you like.
- Models that can think write their thoughts first, and the page folds them. Among the settings you can switch thinking off.
+ I do not think first, I just answer.
== tools-page
P tools
P tool calls
V give the model a tool
V answer a tool call by hand
? can the model call tools
? what is a tool call
? can you use tools
? do tools work on the page
- Tools are functions that a model may call. Define them as JSON under More samplers; the call is shown with its arguments, you type the result, and the model goes on.
- A model that was trained for tools writes a call instead of an answer. On the page you give the result by hand, over the API a program does.
- Under More samplers, in Tools, you give functions with their JSON schemas. The model calls one, and you answer the call by hand.
+ I am too small to call tools well; a larger model does it better.
+ A function is described by a JSON schema.
+ "Must call one" makes the answer a call.
> do you call tools? | can you do it? = Not by myself, I am too small. With "Must call one" I have to, and what I write is at least valid.
"""
