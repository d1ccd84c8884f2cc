# A one-file MCP server for what real ones will not do: python3 -u mcp_surface_mock.py OPTIONS-AS-JSON
# Options: "modern": true speaks 2026-07-28 only; "log": a file that gets every line it receives; "noise": lines for stdout.
import json, sys, threading, time

options = json.loads(sys.argv[1])
modern = options.get("modern", False)
log = open(options["log"], "a") if "log" in options else None
lock, cancelled, answers, counts = threading.Lock(), set(), {}, {}
OBJECT = {"type": "object"}
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
NAMES = ["rounds", "forever", "roots_in", "wish_in", "bad_in", "task", "task_input", "task_fail", "hang_task", "header", "header_drift", "page", "page_again",
         "long", "longid", "malformed", "fits", "wrong", "missing", "refuses", "ask", "ask_hang", "odd_form", "slow", "logs", "change", "drop_stream"]
TOOLS = {name: {"name": name, "description": name, "inputSchema": OBJECT} for name in NAMES}
for name in ["fits", "wrong", "missing", "refuses"]:
    TOOLS[name]["outputSchema"] = NUMBER
TOOLS["outside"] = {"name": "outside", "inputSchema": OBJECT, "outputSchema": {"$ref": "https://example.org/schema.json"}}
for name, support in [("old_task", "required"), ("old_task_input", "required"), ("old_hang", "required"), ("old_optional", "optional")]:
    TOOLS[name] = {"name": name, "inputSchema": OBJECT, "execution": {"taskSupport": support}}
if options.get("hide_support"):
    for tool in TOOLS.values():
        tool.pop("execution", None)
FORM = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
tasks, listed = {}, {"streams": []}


def write(text):
    with lock:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def send(message):
    write(json.dumps({"jsonrpc": "2.0", **message}))


def text(value):
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def form(message="how many?", schema=FORM):
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def ask(request, request_id):
    """A request of our own, and its answer."""
    answers[request_id] = threading.Event()
    send({"id": request_id, **request})
    answers[request_id].wait()
    return answers[request_id].answer


def count(name):
    counts[name] = counts.get(name, 0) + 1
    return counts[name]


class Failure(Exception):
    def __init__(self, code, message, data=None):
        self.error = {"code": code, "message": message, **({"data": data} if data is not None else {})}


def rounds(request, params):
    state, responses = params.get("requestState"), params.get("inputResponses")
    if state is None:
        return {"resultType": "input_required", "inputRequests": {"first": form("first"), "where": {"method": "roots/list"}}, "requestState": "one"}
    if state == "one":
        seen = json.dumps([responses["first"], len(responses["where"]["roots"])])
        return {"resultType": "input_required", "inputRequests": {"second": form("second")}, "requestState": "two " + seen}
    return text({"state": state, "second": responses["second"], "request": request})


def create(kind, params):
    name = "t%d" % (len(tasks) + 1)
    tasks[name] = {"kind": kind, "polls": 0, "cancelled": False, "responses": None}
    return name


def described(name, status, message=None, **more):
    now = "2026-01-01T00:00:00Z"
    interval, ttl = ("pollIntervalMs", "ttlMs") if modern else ("pollInterval", "ttl")
    task = {"taskId": name, "status": status, "createdAt": now, "lastUpdatedAt": now, interval: 60, ttl: None, **more}
    return {**task, "statusMessage": message} if message else task


def get_task(name):
    task = tasks[name]
    task["polls"] += 1
    if task["cancelled"]:
        return described(name, "cancelled")
    kind, polls = task["kind"], task["polls"]
    if kind == "hang_task" or polls < 3:
        return described(name, "working", "poll %d" % polls)
    if kind == "task_fail":
        return described(name, "failed", error={"code": -32000, "message": "it broke"})
    if kind == "task_input" and task["responses"] is None:
        return described(name, "input_required", "waiting for you", inputRequests={"k": form("for the task")})
    result = text({"responses": task["responses"], "polls": polls})
    return described(name, "completed", result={"resultType": "complete", **result})


def get_old_task(name):
    task = tasks[name]
    task["polls"] += 1
    if task["cancelled"]:
        return described(name, "cancelled")
    if task["kind"] == "old_hang" or task["polls"] < 3:
        return described(name, "working", "poll %d" % task["polls"])
    if task["kind"] == "old_task_input" and task["responses"] is None:
        return described(name, "input_required", "waiting for you")
    return described(name, "completed")


def old_task_result(name):
    task = tasks[name]
    if task["kind"] == "old_task_input" and task["responses"] is None:
        request = form("for the old task")
        request["params"]["_meta"] = {"io.modelcontextprotocol/related-task": {"taskId": name}}
        task["responses"] = ask(request, "ask-" + name)
    return text({"responses": task["responses"], "polls": task["polls"]})


def call(request, params):
    name = params["name"]
    if name == "rounds":
        return rounds(request, params)
    if name == "forever":
        return {"resultType": "input_required", "requestState": "again"}
    if name == "roots_in":
        if "inputResponses" not in params:
            return {"resultType": "input_required", "inputRequests": {"where": {"method": "roots/list"}}}
        return text(params["inputResponses"])
    if name in ("wish_in", "bad_in"):
        wish = {"method": "sampling/createMessage", "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}}
        return {"resultType": "input_required", "inputRequests": {"wish": wish}}
    if name in ("task", "task_input", "task_fail", "hang_task"):
        return {"resultType": "task", **described(create(name, params), "working", "begun")}
    if name.startswith("old_"):
        if "task" in params:
            return {"task": described(create(name, params), "working", "begun")}
        if name == "old_optional":
            return text("at once")
        raise Failure(-32601, "it needs to be a task")
    if name in ("header", "header_drift"):
        if count(name) == 1:
            if name == "header_drift":
                TOOLS[name]["description"] = "another one"
            raise Failure(-32020, "the headers do not match")
        return text("matched")
    if name in ("page", "page_again"):
        if count(name) == 1 or name == "page_again":
            page = {"mode": "url", "elicitationId": name, "url": "https://example.org/sign", "message": "sign first"}
            raise Failure(-32042, "open the page", {"elicitations": [page]})
        return text("signed")
    if name == "long":
        return text("x" * (17 << 20))
    if name == "longid":
        write(json.dumps({"result": text("x" * (17 << 20)), "id": request, "jsonrpc": "2.0"}))
        return None
    if name == "malformed":
        write(json.dumps({"jsonrpc": "2.0", "id": request, "error": "broken"}))
        return None
    if name in ("fits", "outside"):
        return {**text("{\"n\": 1}"), "structuredContent": {"n": 1}}
    if name == "wrong":
        return {**text("the words"), "structuredContent": {"n": "one"}}
    if name == "missing":
        return text("only words")
    if name == "refuses":
        return {**text("sorry"), "isError": True}
    if name == "ask":
        return text(ask(form(), "ask-%s" % request))
    if name == "odd_form":
        schema = {"type": "object", "properties": {"deep": {"type": "object", "properties": {"x": {"type": "string"}}}}}
        return text(ask(form("odd", schema), "odd-%s" % request))
    if name == "ask_hang":
        answers["hang"] = threading.Event()
        send({"id": "hang", **form("never mind")})
        if params.get("arguments", {}).get("withdraw"):
            time.sleep(0.3)
            send({"method": "notifications/cancelled", "params": {"requestId": "hang", "reason": "changed my mind"}})
            return text("withdrawn")
        while request not in cancelled:
            time.sleep(0.01)
        return None
    if name == "slow":
        for done in [1, 3, 2, 5]:
            send({"method": "notifications/progress", "params": {"progressToken": params["_meta"]["progressToken"], "progress": done, "total": 9}})
            time.sleep(0.05)
        while request not in cancelled:
            time.sleep(0.01)
        return None
    if name == "logs":
        wanted = params.get("_meta", {}).get("io.modelcontextprotocol/logLevel", counts.get("level"))
        send({"method": "notifications/message", "params": {"level": "warning", "logger": "db", "data": "it is late"}})
        send({"method": "notifications/message", "params": {"level": "critical", "data": {"disk": "full"}}})
        return text(str(wanted))
    if name == "change":
        for kind in ["prompts", "resources"]:
            for _ in range(5):
                announce("notifications/%s/list_changed" % kind, {})
        announce("notifications/resources/updated", {"uri": "mock://a"})
        return text("changed")
    if name == "drop_stream":
        send({"id": listed["streams"].pop(), "error": {"code": -32000, "message": "the stream broke"}})
        return text("dropped")
    raise Failure(-32602, "no such tool")


def announce(method, params):
    if not modern:
        send({"method": method, **({"params": params} if params else {})})
    for stream in listed["streams"][-1:]:
        send({"method": method, "params": {**params, "_meta": {"io.modelcontextprotocol/subscriptionId": stream}}})


def entries(kind, params):
    """Three pages, with a malformed entry on the second; "looping" goes round for ever."""
    page = int(params.get("cursor") or 0)
    good = {"prompts": {"name": "p%d" % page, "arguments": [{"name": "who", "required": True}]},
            "resources": {"uri": "mock://r%d" % page, "name": "r%d" % page},
            "resourceTemplates": {"uriTemplate": "mock://{x}/%d" % page, "name": "t%d" % page}}[kind]
    result = {kind: [good] + ([{"nothing": 1}] if page == 1 else [])}
    if page < 2 or options.get("looping"):
        result["nextCursor"] = str(page + 1 if page < 2 else 1)
    return result


def capabilities():
    base = {"tools": {"listChanged": True}, "prompts": {"listChanged": True}, "resources": {"listChanged": True, "subscribe": True}, "logging": {}, "completions": {}}
    if modern:
        return {**base, "extensions": {"io.modelcontextprotocol/tasks": {}}}
    return {**base, "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}


def respond(method, request, params):
    info = {"capabilities": capabilities(), "serverInfo": {"name": "surface", "version": "1"}}
    if modern and method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], **info}
    if modern and method == "initialize":
        raise Failure(-32022, "only 2026-07-28", {"supported": ["2026-07-28"]})
    if not modern and method == "initialize":
        return {"protocolVersion": "2025-11-25", **info}
    if method == "tools/list":
        return {"tools": list(TOOLS.values())}
    if method == "tools/call":
        return call(request, params)
    if method == "tasks/get":
        return get_task(params["taskId"]) if modern else get_old_task(params["taskId"])
    if method == "tasks/result":
        return old_task_result(params["taskId"])
    if method == "tasks/update":
        tasks[params["taskId"]]["responses"] = params["inputResponses"]
        return {}
    if method == "tasks/cancel":
        tasks[params["taskId"]]["cancelled"] = True
        return {} if modern else described(params["taskId"], "cancelled")
    if method in ("prompts/list", "resources/list", "resources/templates/list"):
        return entries({"prompts/list": "prompts", "resources/list": "resources"}.get(method, "resourceTemplates"), params)
    if method == "prompts/get":
        if modern and "inputResponses" not in params:
            return {"resultType": "input_required", "inputRequests": {"k": form("for the prompt")}}
        return {"messages": [{"role": "assistant", "content": {"type": "text", "text": json.dumps([params.get("arguments"), params.get("inputResponses")])}}]}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": "it says " + params["uri"]}]}
    if method == "resources/subscribe":
        return {}
    if method == "completion/complete":
        return {"completion": {"values": [params["argument"]["value"] + str(n) for n in range(150)][:100]}}
    if method == "logging/setLevel":
        counts["level"] = params["level"]
        return {}
    if method == "subscriptions/listen":
        listed["streams"].append(request)
        send({"method": "notifications/subscriptions/acknowledged", "params": {"notifications": params["notifications"], "_meta": {"io.modelcontextprotocol/subscriptionId": request}}})
        return None
    raise Failure(-32601, "no such method " + str(method))


def handle(message):
    method, request, params = message.get("method"), message.get("id"), message.get("params", {})
    if method == "notifications/cancelled":
        cancelled.add(params.get("requestId"))
    if method is None and request in answers:
        answers[request].answer = message.get("result", message.get("error"))
        answers[request].set()
    if method is None or request is None:
        return
    try:
        result = respond(method, request, params)
        if result is None:
            return
        if modern and method != "tasks/unknown":
            result = {"resultType": "complete", **result}
            if method.endswith("/list") or method in ("resources/read", "server/discover"):
                result.update({"ttlMs": 0, "cacheScope": "private"})
        send({"id": request, "result": result})
        if method == "tools/call" and params.get("name") in ("page", "page_again"):
            return
    except Failure as failure:
        send({"id": request, "error": failure.error})
        if params.get("name") == "page" and options.get("completes"):
            time.sleep(0.5)
            send({"method": "notifications/elicitation/complete", "params": {"elicitationId": "page"}})


for noise in options.get("noise", []):
    write(noise)
for line in sys.stdin:
    if log:
        log.write(line)
        log.flush()
    threading.Thread(target=handle, args=(json.loads(line),), daemon=True).start()
