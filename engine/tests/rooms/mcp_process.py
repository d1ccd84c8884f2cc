# An MCP server for the process tests: python3 -u mcp_process.py OPTIONS-AS-JSON
# It follows files while it runs: as long as the file is there, it behaves like that.
#   pids    every process of its tree is appended there, one number a line
#   log     every method it hears is appended there
#   tree    whether it starts stubborn children and is stubborn itself
#   block   file: it answers nothing, and answers everything when the file is gone
#   refuse  file: tools/list is answered with an error
#   dead    file: it ends at once
#   flood   megabytes that it writes to stderr without a newline before it serves
#   silent  seconds before it serves; with "dots" it shows a sign of life meanwhile
#   port    a port that it listens on
import json, os, signal, socket, subprocess, sys, threading, time

options = json.loads(sys.argv[1])
lock = threading.Lock()

# Ignores SIGTERM and holds a port; the second one leaves the group, the third one leaves it and forgets its environment.
STUBBORN = """
import os, signal, socket, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
with open(sys.argv[1], "a") as pids:
    pids.write(f"{os.getpid()}\\n")
while True:
    time.sleep(1)
"""


def there(name):
    return name in options and os.path.exists(options[name])


def note(name, line):
    if name in options:
        with open(options[name], "a") as file:
            file.write(f"{line}\n")


if there("dead"):
    sys.stderr.write("error: I may not live\n")
    sys.exit(7)
note("pids", os.getpid())
if options.get("tree"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    command = [sys.executable, "-S", "-c", STUBBORN, options["pids"]]
    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
if options.get("bare"):
    subprocess.Popen([sys.executable, "-S", "-c", STUBBORN, options["pids"]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env={})
for _ in range(options.get("flood", 0)):
    sys.stderr.write("x" * 1048576)
if options.get("flood"):
    sys.stderr.write("\nafter the flood\n")
    sys.stderr.flush()
until = time.monotonic() + options.get("silent", 0)
while time.monotonic() < until:
    if options.get("dots"):
        sys.stderr.write(".")
        sys.stderr.flush()
    time.sleep(0.2)
if "port" in options:
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", options["port"]))
    holder.listen()

TOOLS = [
    {"name": name, "description": f"the tool {name}", "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}}}
    for name in ["echo", "hang", "pid", "complain"]
]


def send(message):
    while there("block"):
        time.sleep(0.01)
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def text(value):
    return {"content": [{"type": "text", "text": value}]}


def handle(message):
    method, request, params = message.get("method"), message.get("id"), message.get("params", {})
    if request is None:
        return
    if method == "initialize":
        info = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "process", "version": "1"}}
        send({"id": request, "result": info})
    elif method == "tools/list" and there("refuse"):
        send({"id": request, "error": {"code": -32603, "message": "no list today"}})
    elif method == "tools/list":
        send({"id": request, "result": {"tools": TOOLS}})
    elif method == "tools/call" and params["name"] == "pid":
        send({"id": request, "result": text(str(os.getpid()))})
    elif method == "tools/call" and params["name"] == "complain":
        sys.stderr.write('WARN it is late\nplain words\n{"level":"error","msg":"x"}\n')
        sys.stderr.flush()
        send({"id": request, "result": text("done")})
    elif method == "tools/call" and params["name"] == "echo":
        send({"id": request, "result": text(json.dumps(params.get("arguments", {})))})
    elif method == "tools/call":
        note("log", "hanging")
    else:
        send({"id": request, "error": {"code": -32601, "message": "no such method"}})


for line in sys.stdin:
    message = json.loads(line)
    note("log", message.get("method"))
    threading.Thread(target=handle, args=(message,), daemon=True).start()
while options.get("tree"):
    time.sleep(1)
