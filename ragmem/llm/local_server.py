"""The child process that runs the small model: `python -I local_server.py JSON`.

It is started by path with `-I`, so that nothing in the current folder can shadow a module. It
serves the chat-completions API on a Unix socket in a folder of mode 0700: a TCP port would be
open to every user of the machine, without a password. It exits when its stdin closes, that is,
when its parent ends, however that happens.
"""

import json
import os
import shutil
import sys
import threading


def tell(line: str) -> None:
    """Send one line to the parent."""
    os.write(1, f"{line}\n".encode())


def main() -> None:
    """Load the model, listen, tell the parent `ready`, and wait for the end of stdin."""
    settings = json.loads(sys.argv[1])
    folder = os.path.dirname(settings["socket"])

    def leave_with_parent() -> None:
        while os.read(0, 1024):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    watcher = threading.Thread(target=leave_with_parent)
    watcher.start()
    # -I excludes the user's site-packages, where the library may be installed.
    sys.path.append(settings["packages"])
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.hostnames = [settings["socket"]]
    params.port = 0
    params.n_ctx = settings["context_tokens"]
    params.n_parallel = 1
    params.warmup = False
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = settings["threads"]
        cpu.poll = 0
    server = xllamacpp.Server(params)
    tell("ready")
    watcher.join()
    del server


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        tell(f"{type(error).__name__}: {error}")
        os._exit(1)
