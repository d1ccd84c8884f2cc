# A server that is almost one: python3 -u mcp_odd.py OPTIONS-AS-JSON
#   greeting: the result of initialize    tools: the list    ids: "zero", "null" or "text"
#   replies: {tool: the line as it is, with @ID@ for the id; or a list of numbers, which are written as bytes}
#   error_for_notifications: answers notifications with an error that has no id
import json, sys

options = json.loads(sys.argv[1])
GREETING = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "odd", "version": "1"}}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in options.get("replies", {"echo": ""})]


def write(line):
    sys.stdout.buffer.write((line if isinstance(line, bytes) else line.encode()) + b"\n")
    sys.stdout.buffer.flush()


def shown(number):
    return {"zero": 0, "null": None, "text": str(number)}.get(options.get("ids"), number)


for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if number is None:
        if options.get("error_for_notifications"):
            write(json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "no such method"}}))
        continue
    answer = {"jsonrpc": "2.0", "id": shown(number)}
    if method == "initialize":
        write(json.dumps({**answer, "result": options.get("greeting", GREETING)}))
    elif method == "tools/list":
        write(json.dumps({**answer, "result": {"tools": options.get("tools", TOOLS)}}))
    elif method == "tools/call":
        reply = options.get("replies", {}).get(message["params"]["name"])
        if isinstance(reply, list):
            write(bytes(reply).replace(b"@ID@", json.dumps(shown(number)).encode()))
        elif reply:
            write(reply.replace("@ID@", json.dumps(shown(number))))
        else:
            text = json.dumps(message["params"].get("arguments"))
            write(json.dumps({**answer, "result": {"content": [{"type": "text", "text": text}]}}))
    else:
        write(json.dumps({**answer, "error": {"code": -32601, "message": "no such method"}}))
