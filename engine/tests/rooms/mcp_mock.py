# A one-file MCP server that misbehaves on request: python3 -u mcp_mock.py OPTIONS-AS-JSON
import json, os, signal, subprocess, sys, threading, time

options = json.loads(sys.argv[1])
log = open(options["log"], "a") if "log" in options else None
lock = threading.Lock()
cancelled = set()
OBJECT = {"type": "object"}
TOOLS = [{"name": name, "description": name, "inputSchema": OBJECT} for name in ["echo", "hang", "slow", "pid", "env", "die", "drift"]]
# With "drift_from": N, the Nth start of this server (counted in its log) and later ones list another echo.
starts = sum('"initialize"' in line for line in open(options["log"])) + 1 if "drift_from" in options else 0
DRIFTED = [{**tool, "description": "now something else"} if tool["name"] == "echo" else tool for tool in TOOLS]
state = {"tools": DRIFTED if "drift_from" in options and starts >= options["drift_from"] else TOOLS}


def send(message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def text(value):
    return {"content": [{"type": "text", "text": value}]}


def call(request, params):
    name, arguments = params["name"], params.get("arguments", {})
    if name == "echo":
        return text(json.dumps(arguments))
    if name == "pid":
        return text(str(os.getpid()))
    if name == "env":
        return text(json.dumps(sorted(os.environ)))
    if name == "die":
        sys.stderr.write("last words\n")
        sys.stderr.flush()
        os._exit(9)
    if name == "slow":
        # Out of order on purpose.
        for done in [1, 3, 2, 4, 4, 5]:
            time.sleep(0.1)
            send({"method": "notifications/progress", "params": {"progressToken": params["_meta"]["progressToken"], "progress": done, "total": 5}})
        time.sleep(0.1)
        return text("done")
    if name == "drift":
        state["tools"] = DRIFTED
        for _ in range(5):
            send({"method": "notifications/tools/list_changed"})
        return text("drifted")
    while request not in cancelled:
        time.sleep(0.01)
    return None


def page(cursor):
    pages = options.get("pages")
    if pages is None:
        return {"tools": state["tools"]}
    index = int(cursor or 0)
    answer = {"tools": pages[index]}
    if index + 1 < len(pages):
        answer["nextCursor"] = str(index + 1)
    elif options.get("loop"):
        answer["nextCursor"] = "1"
    return answer


def handle(message):
    method, request, params = message.get("method"), message.get("id"), message.get("params", {})
    if method == "notifications/cancelled":
        cancelled.add(params.get("requestId"))
    if request is None:
        return
    if options.get("modern") and method == "initialize":
        send({"id": request, "error": {"code": -32022, "message": "only 2026-07-28", "data": {"supported": ["2026-07-28"]}}})
    elif method == "initialize":
        info = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "mock", "version": "1"}}
        send({"id": request, "result": {**info, "instructions": "be kind"}})
    elif method == "server/discover" and options.get("modern"):
        info = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": {"name": "mock", "version": "1"}}
        send({"id": request, "result": {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **info}})
    elif method == "tools/list":
        answer = page(params.get("cursor"))
        if options.get("modern"):
            answer.update({"resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
        send({"id": request, "result": answer})
    elif method == "tools/call":
        answer = call(request, params)
        if answer is not None:
            if options.get("modern"):
                answer["resultType"] = "complete"
            send({"id": request, "result": answer})
    else:
        send({"id": request, "error": {"code": -32601, "message": "no such method"}})


if options.get("stubborn"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["sh", "-c", "trap '' TERM HUP; while :; do sleep 1; done"])
if "flood" in options:
    for _ in range(options["flood"]):
        sys.stderr.write("x" * 65536)
    sys.stderr.write("\nafter the flood\n")
    sys.stderr.flush()
for noise in options.get("noise", []):
    print(noise, flush=True)
for line in sys.stdin:
    if log:
        log.write(line)
        log.flush()
    threading.Thread(target=handle, args=(json.loads(line),), daemon=True).start()
while options.get("stubborn"):
    time.sleep(1)
