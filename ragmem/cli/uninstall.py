"""`ragmem uninstall`: see `ragmem.cli.install`."""

from ragmem.cli.install import uninstall
from ragmem.cli.options import commands

app = commands()
app.command()(uninstall)
