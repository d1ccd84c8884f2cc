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
chat-template-broken = This model's chat template does not work
chat-template-file = A chat template of yours is used instead of the model's own
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
call-cancel = Cancel
call-cancelling = cancelling
call-elapsed = { $seconds } s
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
model-use-chatml = Use ChatML instead
model-use-own-template = Use its own template
model-template-chatml = ChatML is used instead of the model's own chat template
model-template-file = The chat template in { $file } is used instead of the model's own
model-others-failed = Sources that failed before:
model-no-source = No source worked. You can try again, or choose a file that you have.

servers-title = Servers
servers-about = MCP servers give the model tools. No call runs that you did not allow.
servers-config-error = The configuration file cannot be used and is left as it is; the servers stay as they were
servers-setting-errors = Some settings for all servers cannot be used
servers-error = That did not work
servers-bad-link = The link cannot be used: { $reason }
servers-empty = No servers yet. “Add servers” takes the text that most servers show in their instructions, and more.
servers-add-title = Add servers
servers-paste = Paste the mcpServers JSON of one or more servers.
servers-paste-example = { "{" } "mcpServers": { "{" } "time": { "{" } "command": "uvx", "args": ["mcp-server-time"] { "}" } { "}" } { "}" }
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
server-needs-consent = waits for your consent
server-needs-sign-in = needs sign-in
server-slow = slow
server-exit-code = Exit code { $code }
server-stderr = Last lines it wrote
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

servers-back = All servers
shared-title = For all servers
shared-folders = Folders you grant
shared-folders-about = Servers that ask are told these folders (roots). A server that is not told still runs with your rights.
shared-add = Add
shared-sampling = Servers may ask your model to write
shared-sampling-about = Off unless you switch it on. You are asked each time before the model reads anything.
log-level = Least level
log-level-server = as the server likes
servers-open-file = Open the file
servers-restore = Restore the backup
servers-tokens = about { $count } tokens
servers-running = { $count ->
    [one] 1 call runs
   *[other] { $count } calls run
}
servers-review = Look and decide
servers-sign-in = Sign in
servers-sign-in-again = Open the sign-in page again
servers-sign-out = Sign out
servers-restart = Restart
servers-wait = Wait longer
servers-start-now = Try now
server-next-try = { $state } · next try in { $seconds } s
server-consent-why = It is started only after you saw and agreed to what is run.
server-signing-in = The browser waits for you to sign in
tool-off = off
tool-gone = not offered any more
tool-cost = { $count } tokens
tools-total = { $on } of { $count } tools on · about { $tokens } tokens in the context
tools-about = A tool that is off is shown to no model. That a tool only reads is the server's own word.

detail-tools = Tools
detail-log = Log
detail-traffic = Traffic
detail-edit = Edit
detail-about = About
detail-search = Search
log-lines = { $count ->
    [one] 1 line
   *[other] { $count } lines
}
log-copy = Copy lines
log-empty = Nothing written yet
level-error = error
level-warning = warning
level-info = info
level-debug = debug
traffic-count = { $count ->
    [one] 1 message
   *[other] { $count } messages
}
traffic-empty = Nothing passed yet
traffic-received = received
traffic-sent = sent
about-none = none
about-process = Process
about-era = Era of the protocol
about-era-legacy = with handshake (up to 2025-11-25)
about-era-modern = stateless (2026-07-28)
about-protocol = Protocol revision
about-offers = Offers
about-tools = tools
about-prompts = prompts
about-resources = resources
about-completions = completions
about-logging = log messages
about-tasks = tasks
about-sign-in = Sign-in
about-sign-in-not-needed = not needed
about-signed-in = signed in at { $issuer }
about-skipped = Skipped lines that were no message
about-calls = Calls that run now
about-cancel = Cancel
about-since = since { $time }
about-description = Description
about-instructions = The server's own instructions

edit-form = Form
edit-json = JSON
edit-save = Save
edit-saved = saved
edit-changed = changed, not saved
edit-revert = Revert
edit-no-form = The form cannot show this entry: an argument is empty, no text, or has several lines. Edit it as JSON.
edit-at = Line { $line }, column { $column }: { $reason }
edit-about = A changed command or address asks for your agreement again.
edit-type = Kind
edit-stdio = Program on this machine (stdio)
edit-http = Address (Streamable HTTP)
edit-sse = Address (older HTTP+SSE)
edit-args = Arguments, one per line
edit-env = Environment
edit-headers = Headers
edit-timeout = Call timeout in seconds
edit-startup = Start timeout in seconds
edit-era-auto = found out by itself
edit-active = Starts with Handrail
edit-name = Name
edit-value = Value
edit-more = Add a row
edit-show = Show values
edit-hide = Cover values

add-paste = Paste
add-look = Look at it

consent-title = { $count ->
    [one] Add this server?
   *[other] Add these { $count } servers?
}
consent-title-known = Start this server?
consent-about = A server is a program that runs with your rights, or an address that is sent what the model asks. Agree only to what you know.
consent-command = Command
consent-args = Arguments
consent-env = Environment
consent-folder = Folder
consent-url = Address
consent-headers = Headers
consent-start = Agree and start
consent-add-start = Add and start
consent-add = Add without starting
consent-cancel = Cancel
consent-variable = { $name } decides which code runs. It is set to “{ $value }”.
consent-shell = { $command } runs this text as a program: { $script }
consent-privileges = { $command } asks for more rights than yours.
consent-unpinned = “{ $package }” names no version: another program may be downloaded and run next time.
consent-plain-http = The connection to { $host } is not encrypted: others can read and change what is sent.
origin-file = From the configuration file
origin-pasted = Pasted by you
origin-imported = Taken over from { $program }
origin-gallery = From the gallery
origin-bundle = From the bundle { $name }
origin-link = From a link on a web page or in another program

question-form = { $server } asks you something
question-url = { $server } wants you to open a page
question-sampling = { $server } wants your model to write something
question-tool = In a call of { $tool }
question-sampling-about = Your model would read the following and answer with at most { $tokens } tokens. The server gets the answer.
question-system = Instructions
question-prompt = Text
question-send = Send
question-open = Open in the browser
question-allow = Allow
question-decline = Decline
question-cancel = Do not answer
question-keys = Enter sends · Esc declines
question-more = { $count ->
    [one] 1 more question waits
   *[other] { $count } more questions wait
}
question-required = required
question-choose = Choose…
question-yes = Yes
question-no = No
question-hint-email = name@example.com
question-host = It goes to { $host }
question-host-odd = This address is made to look like another one. Look closely.
question-host-plain = The connection is not encrypted.
question-no-page = This is no web page. Handrail does not open it.
fault-missing = This must be filled in
fault-short = At least { $count } characters
fault-long = At most { $count } characters
fault-number = This must be a number
fault-integer = This must be a whole number
fault-small = At least { $number }
fault-large = At most { $number }
fault-email = This must be an e-mail address
fault-uri = This must be an address, such as https://example.com
fault-date = This must be a date, such as 2026-01-31
fault-date-time = This must be a date and time, such as 2026-01-31T12:00:00Z
fault-few = Choose at least { $count }
fault-many = Choose at most { $count }

tray-idle = No server runs
tray-well = All is well
tray-busy = A server is on its way
tray-needs = { $count ->
    [one] 1 thing waits for you
   *[other] { $count } things wait for you
}
tray-failed = A server failed
tray-connected = { $connected } of { $count } connected
tray-show = Show Handrail

prompt-assistant = Assistant:
prompt-take = Put into the message
prompt-asking = Asking the server
prompt-none = No connected server has a prompt of this name. The message is sent as it is.
resource-title = Attach a resource of a server
resource-attach = Attach
resource-reading = Reading { $uri }
resource-no-text = This resource holds no text, so it cannot be attached.
resource-more = Only { $count } are shown. Search to find others.

consent-replaces = It replaces the server of this name, which is now: { $old }
consent-secret = It is given the secret “{ $name }” from the keyring.
consent-environment = It is given the variable { $name } of Handrail's own environment, which may be a key.
add-gallery = Gallery
add-import = From other programs
add-bundle = Bundle file
typed-secret = kept in the keyring
typed-folder = Path of a folder
typed-choose = Choose…
import-about = Servers that other programs on this machine are set up with. Their files are only read.
import-looking = Looking for other programs
import-nothing = No other program with MCP servers was found.
import-there = here as { $server }
import-becomes = becomes { $name }
import-needs = Must be given again: { $secrets }
gallery-about = Well-known servers. None is started before you saw what it runs.
gallery-needs = Needs: { $programs }
gallery-asks = Asks for: { $fields }
gallery-check = Check
gallery-checking = Looking for what it needs
gallery-found = { $program }: { $path }
gallery-more = About it
gallery-add = Add
gallery-take = Continue
bundle-about = A bundle (.mcpb) is a server in one file. It is looked into first; nothing is unpacked or run before you agree.
bundle-choose = Choose a bundle…
bundle-open = Open
bundle-by = Version { $version } · by { $author }

server-notes = This server sent things that are out of shape; they were left out or read as what they mean:
server-notes-more = and { $count } more in the log
tool-unchecked = Not checked: { $part }
consent-env-file = It is given the variables of the file { $path }: { $names }
consent-control-path = This path holds a control character: "{ $shown }". Did you mean { $meant }?
consent-control = This holds a control character: "{ $shown }"
chat-servers-wait = { $count ->
    [one] One server is on, but waits for your consent: its tools are not used
   *[other] { $count } servers are on, but wait for your consent: their tools are not used
}
chat-show-servers = Review
