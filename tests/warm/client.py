"""Ask a zygote to run a Python command. Also the program behind `python` in the warm sandbox, so it imports little."""

import array
import json
import os
import socket
import sys


def request(path, argv, cwd, env, handles, keep=()):
    """Start a command; returns the connection and the process id. Closing the connection kills the command.

    Args:
        handles: descriptors of stdin, stdout and stderr.
        keep: further descriptors that the command has under the same numbers.
    """
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    client.connect(path)
    message = json.dumps({"argv": list(argv), "cwd": cwd, "env": dict(env), "keep": list(keep)}).encode()
    rights = array.array("i", [*handles, *keep])
    client.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    started = client.recv(256)
    if not started:
        raise ConnectionError("the zygote did not start the command")
    return client, json.loads(started)["pid"]


if __name__ == "__main__":
    connection, _ = request(
        os.environ["M3B_TEST_ZYGOTE"], ["python", *sys.argv[1:]], os.getcwd(), os.environ, (0, 1, 2)
    )
    answer = connection.recv(256)
    code = json.loads(answer)["code"] if answer else -9
    sys.exit(code if code >= 0 else 128 - code)
