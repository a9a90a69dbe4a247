"""Facts: sharing, people and passwords, names of models, the commands, clients and their APIs, the configuration."""
TEXT = """
== share
T share
T sharing
V share a chat
V send a chat to a friend
V show a chat to somebody else
V share a chat on my network
? what does share do
? how do i get a link to this chat
? how do i share a chat on my network
? can other people see my chat
? can my friend read along
- Press Share above the chat: you get a link and a QR code, and others in your network read along while the answer is written.
- Share makes a link to one chat. Whoever opens it in your network reads along, without a login.
- Press Share, choose what the link shows and when it ends, and send the link or let somebody scan the QR code.
+ Links need no login and no app.
+ The link shows only that one chat, from a message on if you like.
+ It ends after an hour, after a day, or when you end it.
+ A reader can ask to write, and you allow or decline it.
> can they write? | can they change it? = Only if they ask and you allow it. Otherwise they read.
> when does it end? | how long does it work? = After an hour, after a day, or when you press Stop sharing.
== share-end
T the end of a link
V end a link
V stop sharing
? when does a link end
? how long does a share link work
? can i take a link back
? do links expire
- A link ends after an hour, after a day, or when you press Stop sharing; then there is nothing under it.
- You choose an hour or a day, and you can end it at any time with Stop sharing.
- Press Stop sharing in the Share dialog, and the readers are cut off within a second.
+ Deleting the chat ends its links too.
== share-write
T the keyboard of a shared chat
V let a reader write
V write together in one chat
? can somebody with my link write in the chat
? can readers of a link write
? what does ask to write mean
? somebody asks to write, what do i do
- Only if they ask and you allow it. Above the chat you see who asks, and you can take the keyboard back when you like.
- A reader can press "Ask to write"; you allow or decline it above the chat. Without that a link is for reading only.
- Not by itself: a link is for reading. A reader can ask for the keyboard, and you decide.
+ Their messages carry their name.
+ "Take back" ends it.
== qr
T the qr code
V open a chat on my phone
V get the playground on my phone
? what is the qr code for
? can i read the chat on my phone
? how do i get this on my phone
? how do i get the playground on my phone
- For one chat press Share and scan the QR code. For the whole playground start `m40-llm --lan` and scan the code that it prints.
- Scan the QR code with the phone's camera: the one under Share opens that chat, the one that `--lan` prints logs the phone in.
- The QR code holds the address, so that you need not type it. Point your phone's camera at it.
+ The phone must be in the same network.
+ On a phone the sliders become a sheet.
> it does not open, why? | it does not work = Check that the phone is in the same network, and that no firewall blocks the port.
== lan-flag
T --lan
T the flag --lan
V open the playground to my network
V use the playground from another computer
V let other machines in
? what does --lan do
? how do other computers use this server
? can my family use it too
? can i use it from my laptop while it runs on the server
- `m40-llm --lan` lets other machines of your network use the playground; they log in with a code, a passphrase or an API key.
- With `--lan` the server accepts other machines. It prints the addresses, a code and a QR picture to log in with.
- Without it the server answers this machine only. `m40-llm --lan` opens it to your network, and everybody logs in.
+ Its name in the network is m40-llm.local.
+ A code works once, for five minutes.
+ Each person has chats of their own.
> is that safe? | is it encrypted? = Everybody has to log in. Add `--tls` to encrypt the connections.
== lan
T a lan
T the local network
? what does lan mean
? can other computers at home see it
? does the share link work outside my house
- LAN means local area network: the computers at home or in an office that share one network.
- It is your home or office network, mostly the one behind your WiFi.
+ Shared links work inside it; for strangers on the internet they are dead.
+ With `--lan` the whole playground is open to it, after a login.
+ A firewall may have to allow the port.
== tls
T --tls
T encryption
V encrypt the connection
V use https
? what does --tls do
? is the connection encrypted
? why does the browser warn about the certificate
? can i use my own certificate
- `--tls` encrypts the connections with a certificate that the server makes itself; browsers warn once, because they do not know it.
- Start with `m40-llm --lan --tls`, and everything is encrypted. Compare the fingerprint when the browser warns.
- It turns on encryption: without it others in the network could read along.
+ `--tls-cert` and `--tls-key` take a certificate of your own.
+ The fingerprint is printed at the start.
== passphrase
T a passphrase
P passphrases
V set a passphrase
V log in without a code
? what is a passphrase for
? how do i set a passphrase
? i forgot my passphrase
? how long must a passphrase be
- A passphrase lets you log in on another machine without a code. Set it on the page People; it has at least 12 characters.
- With a passphrase you log in from other machines. You set it on your page of People, or with `m40-llm passphrase`.
- It is the password of a person, for logging in over the network. It has at least 12 characters.
+ If you forgot it, run `m40-llm passphrase` on the server.
+ Five tries a minute are allowed.
> i forgot it | what if i forget it? = Run `m40-llm passphrase` on the machine of the server and set a new one.
== people
P people
T the page people
V add another person
V add a person
V log a device out
V remove a person
? how do i add another person
? can my sister have her own chats
? what is the page people for
? do others see my chats
- On the page People you add a person, and a code or QR picture logs their device in. Each person has chats, presets and settings of their own.
- Open People and add them: they get a code for their device, and their chats are their own.
- The page People lists persons, their devices and their API keys; you add and remove them there.
+ You do not see what others ask, and they do not see yours.
+ Only the owner downloads and deletes models.
+ There you also log devices out.
== activity
T the page activity
V see who uses the engine
V stop somebody's answer
? who is using the model now
? why do i have to wait
? what does the page activity show
- The page Activity shows which answers are written or wait, who asked for them and how fast they are; you can stop them there.
- Open Activity: it lists the answers that run or wait, with the person, the model and the tokens per second.
+ Nobody sees what the others ask.
+ Up to 16 answers are written at once.
== api-key
T an api key
P api keys
V make an api key
? do i need an api key
? where do i get an api key
? what is --api-key for
- On this machine you need none. For other machines make a key on the page People, or start the server with `--api-key`.
- API keys for programs are made on the page People; with `--api-key K` every request needs that one.
+ Send it as `Authorization: Bearer`.
+ A library that insists on a key takes any word when none is set.
== ollama-flag
T --ollama
T the flag --ollama
T ollama's api
V use an ollama client
V use open webui with it
? what does --ollama do
? does it work with ollama clients
? can it replace ollama
? which port does ollama use
- `--ollama` makes the server listen on port 11434 too, where clients of Ollama look for it.
- It understands Ollama's API, such as /api/chat, /api/tags and /api/show; with `--ollama` also on Ollama's port 11434.
- Programs made for Ollama find it when you start `m40-llm serve --ollama`, since it then answers on port 11434.
+ Without the flag the same routes are on port 8080.
== anthropic-api
T anthropic's api
T /v1/messages
V use an anthropic client
? does it understand the anthropic api
? what is /v1/messages for
? can i use a claude client with it
- Yes, POST /v1/messages has the format of Anthropic's API: set the base address of the client to http://localhost:8080.
- /v1/messages takes requests as clients of Anthropic send them, with tools, streams and a count of tokens.
+ Only local models answer, nothing is sent to anybody.
== apis
P the apis
P client libraries
T the api
V use it from my own program
V call the model from code
? which apis can my programs use
? which apis are there
? is there an api
? which clients work with it
? can my programs talk to it
? which endpoints are there
- Programs can use the APIs of OpenAI, Anthropic, Ollama and llama-server, at http://localhost:8080, and one of its own, /v1/generate.
- It speaks OpenAI's API, with /v1/chat/completions and /v1/responses, Anthropic's /v1/messages, Ollama's /api/chat, and its own /v1/generate.
- Yes: it understands clients of OpenAI, Anthropic, Ollama and llama-server. For OpenAI's set the base address to http://localhost:8080/v1.
+ /openapi.json lists all routes with their fields.
+ Ask me for a curl example.
+ Nothing leaves your machine; the API is local.
> give an example | example? | curl? = Try this:\\n\\n```bash\\ncurl http://localhost:8080/v1/chat/completions \\\\\\n  -H "Content-Type: application/json" \\\\\\n  -d '{"messages": [{"role": "user", "content": "Hello!"}]}'\\n```
> do i need a key? | is there a key? = Not on this machine. If a library insists on a key, give it any word.
== schema
T structured output
T a json schema
V get valid json
V make the answer follow a schema
? can the answer be valid json
? what is response_format
? how do i constrain an answer
- Give a JSON Schema or a grammar with the request, and the answer is always valid: tokens that would break it are masked.
- Use `response_format` with a JSON Schema over the API, or `--json-schema FILE` with `m40-llm run`.
+ A grammar in GBNF works as well.
== embeddings-route
T /v1/embeddings
V get embeddings of a text
? how do i compute embeddings
? can you make embeddings
? which model makes embeddings
- An embedding of a text is a list of numbers for its meaning. It takes a model that was made for embeddings; I am a chat model.
- For embeddings load an embedding model and ask for them over the API; I only chat.
+ Texts with a similar meaning get similar numbers.
+ They are used for searching in documents.
== upstream
T --upstream
T an upstream
V use a model of another server
V put the playground in front of vllm
? what does --upstream do
? can it use another server's models
? can i use a bigger machine for the models
- `--upstream URL` names another server with OpenAI's API, such as vLLM or a second m40-llm; its models are then in the picker too.
- With an upstream the playground is the page in front, and another server computes the answers.
- It adds the models of another server to those of this machine.
+ What the other server cannot do is greyed.
+ I run right here, without any upstream.
== config-toml
T config.toml
T the configuration file
V save the flags in a file
V configure the server
? what goes into config.toml
? where is the configuration file
? how do i set a flag for good
? can flags be set in the environment
- config.toml in ~/.m40-llm holds the values of flags by their names, such as `threads = 8`, with tables like `[serve]` and `[run]`.
- Flags by their names: for all commands at the top, for one command in its table, such as `keep-alive = "30m"` under `[serve]`.
- It is a file in ~/.m40-llm with flags in TOML. The command line comes first, then the environment, then the file.
+ `--max-tokens` is M40_LLM_MAX_TOKENS in the environment.
+ An unknown key is an error that names the file.
> give an example | example? = ```toml\\nthreads = 8\\n[serve]\\nkeep-alive = "30m"\\n```
== pull
V download a model
V get a larger model
V install a model
V add a real model
V get a bigger model
T m40-llm pull
? which command downloads a model
? where do models come from
? what does m40-llm pull do
? how do i get a bigger model
- Run `m40-llm pull NAME`, or type the name on the page Models; the file comes from Hugging Face or the Ollama library.
- On the page Models you look up a name, see how much memory it needs, and download it. In a terminal it is `m40-llm pull NAME`.
- Type `m40-llm pull` and a name, such as `mistral` or `llama3.2:1b`.
+ It says before how large it is and which context fits.
+ A download that stopped goes on with the same command.
+ When it is done, choose the model in the menu at the top.
> which one should i take? | which model? = For a start an instruct model of 1B to 8B in Q4_K, depending on your memory. The page Models suggests three.
> how long does it take? | is it big? = A 4 GB file takes about six minutes at 100 megabits per second.
== pull-mistral
V pull mistral
V pull llama
V pull a model from ollama's library
? how do i pull mistral
? how do i get llama 3.2
? does m40-llm pull mistral work
? can i use ollama names
- Run `m40-llm pull mistral`; a size is named with a tag, such as `m40-llm pull llama3.2:1b`.
- `m40-llm pull mistral` works, and `m40-llm pull llama3.2:1b` too: such short names come from the Ollama library.
- Just by its name: `m40-llm pull mistral`.
+ You can type the same name on the page Models.
+ Names such as `hf.co/org/repo:Q4_K_M` come from Hugging Face.
== pull-quant
P names of models to pull
V pull a model with a certain quantisation
V choose the quantisation to download
V pull from hugging face
? how do i pull a model with a certain quantisation
? which names can i pull
? what does hf.co mean
? how do i write the name of a hugging face model
- Write the quantisation after a colon: `m40-llm pull org/repo:Q4_K_M`, or `hf.co/org/repo:Q4_K_M`. `--quant` does the same.
- Names are `mistral` or `llama3.2:1b` from Ollama's library, `org/repo:Q4_K_M` or `hf.co/org/repo:Q4_K_M` from Hugging Face, or the address of a GGUF file.
- Use `m40-llm pull org/repo:Q8_0`, with the repository of Hugging Face and the quantisation you want.
+ Without it the best one that fits into your memory with its cache is chosen.
+ A table shows size, context and expected speed of each.
== pull-choice
P the choice of a quantisation
? how does pull choose the quantisation
? which file does pull take
? what are the expected tokens per second in the table
- It takes the one with most bits that fits with its cache and should give 10 tokens per second; others can be chosen from the table.
- By memory and speed: it measures how fast your memory is, and chooses the largest that fits and is fast enough.
+ `--quant Q5_K_M` takes another one.
== models-page
T the page models
V see all models in the browser
V manage my models
? what is on the page models
? can i download a model in the browser
? where do i delete a model in the browser
- The page Models lists your models with size, quantisation and context, downloads new ones, and deletes those you do not need.
- There you look up a name, download it, pause or resume, see what is wrong with a file, and delete files.
+ Context, cache and threads of a model can be changed there.
+ It suggests three models that fit this machine.
== delete-model
V delete a model
V remove a model
V free disk space
? how do i get rid of a model
? can i uninstall a model
? what does m40-llm rm do
- Delete it on the page Models, or run `m40-llm rm NAME`.
- `m40-llm rm NAME` deletes a model; in the browser there is a button on the page Models.
+ `m40-llm list` shows the names.
+ Me you cannot delete, I am part of the program.
== commands
P the commands
? which commands are there
? what can i type in the terminal
? give me a list of the commands
? m40-llm commands
- The main ones are `serve`, `run`, `pull`, `list`, `show` and `rm`; `m40-llm help` lists them all.
- `serve` opens the playground, `run` chats in the terminal, `pull` downloads a model, `list` shows your models, `show` explains one, and `rm` deletes one.
- The commands:\\n\\n- `m40-llm serve` opens the playground\\n- `m40-llm run` chats in the terminal\\n- `m40-llm pull NAME` downloads a model\\n- `m40-llm list` lists the models\\n- `m40-llm rm NAME` deletes one
+ `-h` after a command explains its flags.
+ There are also `ps`, `cp`, `bench`, `perplexity`, `export`, `restore` and `passphrase`.
> and options? | are there options? = Yes, `-h` after a command lists its flags.
== ps
T m40-llm ps
? which model is loaded now
? how do i see what the server is doing
? what does m40-llm cp do
- `m40-llm ps` says which model a server has loaded, on which device, who uses it and until when it stays.
- Run `m40-llm ps`; in the browser the name of the model stands at the top.
+ `m40-llm cp NAME COPY` gives a model a second name.
== keep-alive
T --keep-alive
V unload the model
V free the memory when nobody chats
? how long does a model stay loaded
? what does --keep-alive do
- A model stays loaded until another one is needed; with `--keep-alive 30m` it is unloaded when nobody used it for 30 minutes.
- `--keep-alive 30m` unloads a model after 30 idle minutes; the next request loads it again.
+ By default it stays, because loading takes longest.
== bench
T m40-llm bench
V measure the speed
? how fast is my computer with models
? what does m40-llm bench do
- `m40-llm bench` measures how fast a model reads and writes on this machine.
- Run `m40-llm bench`: it prints tokens per second for prompts and for answers.
+ `m40-llm perplexity` measures how well a model predicts a text.
== backup
T a backup
V back up my chats
V restore my chats
V export all chats
? are there backups
? how do i restore a backup
? how do i export everything
- The server makes a backup of the chats every day and keeps seven; `m40-llm restore` lists them or puts one back.
- `m40-llm export FOLDER` writes all your chats and presets as files, and `m40-llm restore` brings a backup back.
+ One chat is exported from its menu, as JSON or Markdown.
== export
V export a chat
V save a chat as text
V import a chat
? can i copy a chat into a file
? how do i keep a chat outside the program
- Export it from the menu of the chat, as JSON or as Markdown; JSON can be imported again.
- The chat's menu has Export: Markdown for reading, JSON for importing it again.
+ `m40-llm export` writes all chats at once.
== chat-order
P folders
V find an old chat
V search my chats
V pin a chat
V archive a chat
? where is my old chat
? how do i search in my chats
? can i put chats into folders
- Press `/` and type: titles and messages are searched. Chats can be renamed, pinned, put into folders, archived and deleted.
- Search with `/`; the menu of a chat pins it, moves it to a folder, archives or deletes it.
+ A deleted chat can be undone.
+ All chats survive a restart.
== survive
P interrupted answers
? what if i close the browser while you write
? does the answer go on when i reload
? what happens when the server is killed
- The answer is written on, even without an open page; when you come back it is there.
- Nothing is lost: after a reload the answer goes on, and if the server is killed, all but the last half second is kept.
+ An interrupted answer can be continued.
== raw
T a raw chat
P raw chats
V use a base model
? how do i let a base model continue my text
? what is a raw chat
- A raw chat has no chat template: the model simply continues your text. It is made for base models.
- In a raw chat the text goes to the model as it is, and it writes on.
+ I am a chat model, so I am better in an ordinary chat.
"""
