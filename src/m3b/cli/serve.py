"""`m3b mcp`: m3b as tools of a chat client."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from m3b.cli.output import echo
from m3b.errors import UsageError

DEFAULT_PORT = 8765


def mcp(
    data: Annotated[
        list[Path] | None,
        typer.Option(help="A folder that clients may read; repeatable. Default: the current folder."),
    ] = None,
    llm: Annotated[
        str | None, typer.Option(help="The language model that builds, as for `m3b run`. Default: your configuration.")
    ] = None,
    runs: Annotated[Path | None, typer.Option(help="Folder of new runs. Default: $M3B_RUNS, or runs.")] = None,
    send_images: Annotated[
        bool,
        typer.Option(
            "--send-images", help="Send pictures of predictions to the client: patient data leaves this machine then."
        ),
    ] = False,
    http: Annotated[bool, typer.Option("--http", help="Serve over HTTP instead of standard input and output.")] = False,
    host: Annotated[str, typer.Option(help="Address for --http.")] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A further host name that requests over HTTP may use, as behind a proxy; repeatable."),
    ] = None,
    port: Annotated[int, typer.Option(help="Port for --http; 0 takes a free one.")] = DEFAULT_PORT,
) -> None:
    """Serve m3b to a chat client by the Model Context Protocol: look at data, build models, predict.

    Over HTTP, requests need the token that is printed, or that of $M3B_SERVE_TOKEN.
    """
    from m3b.serve.tools import ServerSettings

    try:
        from m3b.serve.mcp_server import make_server
    except ImportError as error:
        raise UsageError("m3b mcp takes the extra `serve`: pip install 'm3b[serve]'.") from error
    settings = ServerSettings(data or [Path.cwd()], llm, send_images, runs)
    server = make_server(settings)
    if not http:
        server.run("stdio")
        return
    from m3b.serve.http import choose_token, make_mcp_app, open_socket, serve

    with open_socket(host, port) as listener:
        open_port = int(listener.getsockname()[1])
        address = f"http://{f'[{host}]' if ':' in host else host}:{open_port}/mcp"
        chosen, is_new = choose_token()
        echo(f"MCP server: {address}" + (f"\nHeader: Authorization: Bearer {chosen}" if is_new else ""), err=True)
        try:
            serve(make_mcp_app(server, chosen, host, open_port, allow_host or []), listener)
        except OSError as error:
            raise UsageError(f"{address} cannot be served: {error.strerror}.") from error
