"""Runs a command on a terminal of its own, COLUMNS wide, and prints what it wrote there.

usage: terminal.py COLUMNS COMMAND ARG…

TERMINAL_KEYS: what is typed, a line of it each time that the command has printed TERMINAL_PROMPT.
"""

import fcntl
import os
import pty
import struct
import sys
import termios

pid, master = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
keys = os.environ.get("TERMINAL_KEYS", "").splitlines(keepends=True)
prompt = os.environ.get("TERMINAL_PROMPT", "").encode()
unseen = b""
fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
while True:
    try:
        data = os.read(master, 65536)
    except OSError:
        break
    if not data:
        break
    unseen += data
    while prompt and prompt in unseen:
        unseen = unseen[unseen.index(prompt) + len(prompt) :]
        if keys:
            os.write(master, keys.pop(0).encode().replace(b"\n", b"\r"))
    sys.stdout.buffer.write(data.replace(b"\r\n", b"\n"))
_, status = os.waitpid(pid, 0)
sys.exit(os.waitstatus_to_exitcode(status))
