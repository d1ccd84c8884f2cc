app-name = Handrail
app-dismiss = Dismiss
app-errors = Something could not be read

sidebar-new = New chat
sidebar-today = Today
sidebar-yesterday = Yesterday
sidebar-week = Previous 7 days
sidebar-older = Older
sidebar-servers = { $count ->
    [0] Servers
    [one] 1 server connected
   *[other] { $count } servers connected
}
sidebar-library = Library
sidebar-models = Models
sidebar-settings = Settings
sidebar-delete = Delete
sidebar-delete-ask = Delete it?
sidebar-keep = Keep

chat-new = New chat
chat-you = You
chat-empty-title = What do you want to know?
chat-empty = Write a message below. Attach a file to ask about it; connect a server to let the model use tools. Nothing runs that you did not allow.
chat-no-model = No model to answer yet
chat-no-model-why = { $model } is not on this machine.
chat-show-models = Show models
chat-failed = The answer broke off
chat-retry = Try again
chat-stopped = Stopped
chat-interrupted = Interrupted when the app closed
chat-copy = Copy
chat-usage = { $tokens } tokens · { $speed } tokens/s · prompt { $prompt }, { $cached } from cache
chat-passages = { $count ->
    [one] 1 passage found
   *[other] { $count } passages found
}
chat-page = p. { $page }
chat-reasoning = Reasoning
chat-reading = Reading { $done } of { $total } tokens
chat-thinking = Getting ready
chat-to-end = Go to the end

composer-placeholder = Message…
composer-drop = Drop the file to attach it
composer-attach = Attach files
composer-attach-path = Attach
composer-send = Send
composer-stop = Stop
composer-tools-auto = Tools: the model decides
composer-tools-none = Tools: none
composer-tools-required = Tools: must use one

attachment-waiting = getting ready
attachment-reading = page { $done }
attachment-reading-of = page { $done } of { $total }
attachment-embedding = indexing { $done } of { $total }

inspector-title = Passages
inspector-close = Close
inspector-place = Characters { $start }–{ $end }
inspector-place-page = Page { $page } · characters { $start }–{ $end }

call-asks = waits for you
call-proposed = not decided
call-deny = Deny
call-allow-once = Allow once
call-allow-conversation = Allow in this conversation
call-always = Always
call-always-tool = { $tool } of { $server }, as it is now
call-always-server = Every tool of { $server }
call-no-arguments = No arguments
call-raw = Show raw JSON
call-list = Show as a list
call-running = running
call-progress = { $done } done
call-progress-of = { $done } of { $total }
call-allowed-by = Allowed by { $by }
call-done = done
call-tool-error = the tool reports an error
call-denied = denied
call-failed = failed
call-stopped = stopped
call-unknown = unknown
call-unknown-why = It was sent, but no answer was recorded before the app stopped. It is not sent again.
call-result-cut = The rest is left out here; Copy takes all of it.
call-copy = Copy

welcome-title = Welcome to Handrail
welcome-about = A model that runs on this machine answers you. Two small files are needed once: one to answer, one to search in your documents.
welcome-fetch = Download both
welcome-start = Start
welcome-skip = Skip for now
welcome-offline = No network? Choose a GGUF file that you have. Everything else works without one.
welcome-no-catalogue = Handrail knows no models to download. Choose a GGUF file that you have.

models-title = Models
models-about = Models run inside this app. Nothing you write leaves the machine.
models-chat = Answers
models-embedding = Search in documents
models-own = You have a model as a GGUF file?
models-choose = Choose a file…
models-take = Use this file
models-error = That did not work
model-size = { $size }
model-context = { $tokens } tokens of context
model-fetch = Download
model-fetch-again = Download again
model-resume = Resume ({ $done } here)
model-cancel = Cancel
model-fetching = downloading
model-starting = Looking for a source
model-progress = { $done } of { $total } · { $speed }/s · { $source }
model-in-use = in use
model-ready = ready
model-broken = broken
model-missing = not here
model-from = From { $source }
model-use = Use
model-verify = Check
model-remove = Remove
model-others-failed = Sources that failed before:
model-no-source = No source worked. You can try again, or choose a file that you have.

servers-title = Servers
servers-about = MCP servers give the model tools. No call runs that you did not allow.
servers-config-error = The server configuration is not used; the file is left as it is
servers-error = That did not work
servers-empty = No servers yet. Paste the configuration of one below; the text that most servers show in their instructions works as it is.
servers-add-title = Add servers
servers-paste = Paste the mcpServers JSON of one or more servers.
servers-paste-example = { "{" } "mcpServers": { "{" } "time": { "{" } "command": "uvx", "args": ["mcp-server-time"] { "}" } { "}" } { "}" }
servers-add = Add
servers-start = Start
servers-stop = Stop
servers-remove = Remove
servers-remove-ask = Remove it?
servers-tools = { $count ->
    [one] 1 tool
   *[other] { $count } tools
}
server-stopped = stopped
server-starting = starting
server-connected = connected
server-reconnecting = reconnecting, attempt { $attempt }
server-failed = failed
server-exit-code = Exit code { $code }
server-stderr = Last lines it wrote
server-pid = Process { $pid }
server-protocol = Protocol { $version }
server-no-tools = It offers no tools, or is not connected.
tool-read-only = says it only reads

library-title = Library
library-about = Documents that you attached. Answers cite them by page.
library-add = Add files
library-take = Add
library-empty = No documents yet. Attach a file to a message, or add it here.
library-error = That did not work
library-reading = { $count ->
    [one] Reading 1 file
   *[other] Reading { $count } files
}
library-remove = Remove
document-ready = ready
document-partly = partly searchable
document-failed = failed
document-pages = { $count ->
    [one] 1 page
   *[other] { $count } pages
}
document-chunks = { $count ->
    [one] 1 passage
   *[other] { $count } passages
}

settings-title = Settings
settings-error = The settings could not be saved
settings-look = Look
settings-answers = Answers
settings-theme = Theme
settings-theme-about = Light, dark, or as the system has it.
settings-language = Language
settings-language-about = The language of the interface.
settings-system = Like the system
settings-light = Light
settings-dark = Dark
settings-model = Model
settings-model-about = Answers new messages.
settings-steps = Steps in one turn
settings-steps-about = How often the model may call tools before it must answer.
settings-tokens = Longest answer
settings-tokens-about = In tokens; about four characters each.
settings-passages = Passages
settings-passages-about = How many passages of your documents the model reads for a question.
settings-timeout = Tool timeout
settings-timeout-about = How long a tool may stay silent.
settings-threads = Threads
settings-threads-about = Processor threads for the local model. Used after a restart of Handrail.
settings-automatic = automatic

path-placeholder = Path of a file
path-close = Close
path-why = This system offers no file dialog (no desktop portal and no zenity), so write the path of the file here.

fault-title = Handrail cannot start
fault-why = Nothing was changed. The reason:
fault-folder = Data folder
fault-folder-about = Mend what the reason names and start Handrail again, or start it with --data-dir and another folder.
fault-quit = Quit
