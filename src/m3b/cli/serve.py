"""`m3b mcp`, `m3b serve` and `m3b view`: tools of a chat client, models over HTTP, runs as pages for a browser."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from m3b.cli.delivered import Unconfined, announce_origin
from m3b.cli.output import echo
from m3b.errors import UsageError

DEFAULT_PORT, DEFAULT_VIEW_PORT = 8765, 8766
DEFAULT_SERVE_PORT = 8000
LOOPBACK_ADDRESS = "127.0.0.1"


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


def serve(
    models: Annotated[
        list[str], typer.Argument(help="Delivered models: a run, or a folder; NAME=PATH gives a name for the URL.")
    ],
    host: Annotated[str, typer.Option(help="Address. Beyond this machine, a token is needed.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = DEFAULT_SERVE_PORT,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with the token that requests need. Default: $M3B_SERVE_TOKEN.")
    ] = None,
    audit_log: Annotated[
        Path | None, typer.Option(help="A file for one JSON line a request, without identity.")
    ] = None,
    studies: Annotated[
        Path | None,
        typer.Option(help="A folder of images for labelling tools (MONAI Label). Labels go to m3b-labels/ in it."),
    ] = None,
    max_mib: Annotated[int, typer.Option(min=1, help="Maximum size of a request in MiB.")] = 2048,
    queue: Annotated[int, typer.Option(min=1, help="Requests that one model holds at once; more get 503.")] = 16,
    timeout: Annotated[float, typer.Option(min=1.0, help="Seconds for one upload, and for its prediction.")] = 600.0,
    dicom_port: Annotated[
        int | None, typer.Option(help="Be a DICOM node at this port too: images come by C-STORE. 0 takes a free one.")
    ] = None,
    ae_title: Annotated[str, typer.Option(help="AE title of the node.")] = "M3B",
    allow_ae: Annotated[
        list[str] | None,
        typer.Option(metavar="TITLE[@HOST]", help="A sender whose images the node takes; repeatable."),
    ] = None,
    send_to: Annotated[
        str | None,
        typer.Option(
            metavar="TITLE@HOST:PORT", help="Where the node's results go, by C-STORE; or dicomweb:URL, by STOW-RS."
        ),
    ] = None,
    dicom_format: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMAT", help="The node's results: seg, sr (both by default), rtstruct, pdf; repeatable."
        ),
    ] = None,
    modality: Annotated[
        list[str] | None, typer.Option(help="A modality that the node takes, such as CT; repeatable. Default: all.")
    ] = None,
    quiet_seconds: Annotated[
        float,
        typer.Option(min=0.0, help="Time without a new image, from the release on, before a series is complete."),
    ] = 0.0,
    max_series: Annotated[
        int, typer.Option(min=1, help="Series that may wait in the node; further ones are refused.")
    ] = 100,
    spool: Annotated[
        Path, typer.Option(help="Folder of the node's series on their way; what waits there survives a restart.")
    ] = Path("m3b-dicom"),
    unconfined: Unconfined = False,
) -> None:
    """Serve delivered models over HTTP: predictions, health, metrics, MONAI Label; one model also as a DICOM node.

    Each model's code runs confined, in a process that stays warm.
    """
    from m3b.serve.http import is_loopback, list_own_names, open_socket, read_token

    try:
        from m3b.serve.model_pool import open_models
        from m3b.serve.monai_label import OPEN_PATHS, LabelRoutes
        from m3b.serve.predict_app import ServerState, make_predict_app
        from m3b.serve.uploads import UploadLimits
    except ImportError as error:
        raise UsageError("m3b serve takes the extra `serve`: pip install 'm3b[serve]'.") from error
    from m3b.models.dicom.output import DEFAULT_FORMATS
    from m3b.serve.audit_log import AuditLog
    from m3b.serve.dicom_node import NodeSettings, run_node
    from m3b.serve.http import serve as run_server
    from m3b.serve.study_folder import StudyFolder

    token = read_token(token_file)
    if not token and not is_loopback(host):
        raise UsageError(f"--host {host}: beyond this machine a token is needed: --token-file, or $M3B_SERVE_TOKEN.")
    if studies is not None and not studies.is_dir():
        raise UsageError(f"There is no folder {studies}.")
    if dicom_port is None and (allow_ae or send_to):
        raise UsageError("--allow-ae and --send-to are of the DICOM node: add --dicom-port.")
    if dicom_port is not None and (len(models) != 1 or not send_to):
        raise UsageError("--dicom-port takes one model, and --send-to for its results.")
    pool = open_models(models, max_waiting=queue, timeout_s=timeout, unconfined=unconfined)
    for served in pool.models:
        announce_origin(served.model.folder, unconfined=unconfined)
    limits = UploadLimits(max_bytes=max_mib * 2**20, upload_s=timeout)
    with open_socket(host, port) as listener:
        open_port = int(listener.getsockname()[1])
        address = f"http://{f'[{host}]' if ':' in host else host}:{open_port}"
        state = ServerState(pool, limits, AuditLog(audit_log))
        label_routes = LabelRoutes(state, token, None if studies is None else StudyFolder(studies))
        app = make_predict_app(
            state, token=token, host_names=list_own_names(host, open_port), more_routes=label_routes.routes(),
            open_paths=OPEN_PATHS, on_stop=[label_routes.stop],
        )  # fmt: skip
        echo(f"serving {', '.join(served.name for served in pool.models)}: {address}/v1/models", err=True)
        with ExitStack() as stack:
            if dicom_port is not None and send_to is not None:
                node_settings = NodeSettings(
                    allow_ae or (), send_to, spool, ae_title, host, dicom_port, dicom_format or DEFAULT_FORMATS,
                    modality or (), quiet_seconds, max_series,
                )  # fmt: skip
                stack.enter_context(run_node(node_settings, pool.models[0].model.folder, unconfined=unconfined))
            run_server(app, listener)


def view(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER]...", help="Runs, or folders of runs. Default: all runs that you started."),
    ] = None,
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = DEFAULT_VIEW_PORT,
) -> None:
    """Show runs in a browser on this machine: list, search, compare, report of each, and those at work as they go.

    Open the address that is printed: it holds a token without which nothing is shown.
    """
    try:
        from m3b.serve.view.app import make_view_app
        from m3b.serve.view.context import ViewSettings
    except ImportError as error:
        raise UsageError("m3b view takes the extra `serve`: pip install 'm3b[serve]'.") from error
    from m3b.serve.http import choose_token, open_socket, serve

    for folder in folders or []:
        if not folder.is_dir():
            raise UsageError(f"There is no folder {folder}.")
    token, _ = choose_token()
    with open_socket(LOOPBACK_ADDRESS, port) as listener:
        address = f"http://{LOOPBACK_ADDRESS}:{listener.getsockname()[1]}/"
        echo(f"{address}?token={token}\nStop it with Ctrl+C.")
        serve(make_view_app(ViewSettings(token, folders or [])), listener)
