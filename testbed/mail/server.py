"""A mail server for tests: SMTP and POP3 over folders, with nothing but the standard library.

Usage: server.py FOLDER SMTP_PORT POP3_PORT

A mail to ann@example.com is a file in FOLDER/ann@example.com, written whole. A login by POP3
as a user sees the folder of that name. Both take the password `secret` alone. Both ports are printed
when it listens (0 takes any that is free); it ends when its standard input does.
"""

import asyncio
import base64
import itertools
import os
import sys
import time

PASSWORD = "secret"
FOLDER = sys.argv[1]
NUMBERS = itertools.count()


def deliver(address, mail):
    box = os.path.join(FOLDER, os.path.basename(address))
    os.makedirs(box, exist_ok=True)
    name = "%020d-%d-%d" % (time.time_ns(), os.getpid(), next(NUMBERS))
    with open(os.path.join(FOLDER, name + ".new"), "wb") as file:
        file.write(mail)
        file.flush()
        os.fsync(file.fileno())
    os.rename(file.name, os.path.join(box, name))


async def line_of(reader):
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise ConnectionError("gone")
    return line


async def mail_of(reader):
    """Lines up to a dot alone."""
    mail = b""
    while (line := await line_of(reader)) not in (b".\r\n", b".\n"):
        mail += line[1:] if line.startswith(b".") else line
    return mail


def address_in(command):
    return command[command.index("<") + 1 : command.index(">")]


def is_known(secret):
    return base64.b64decode(secret).split(b"\0")[-1].decode() == PASSWORD


async def smtp(reader, writer):
    async def say(text):
        writer.write((text + "\r\n").encode())
        await writer.drain()

    knows, to = False, []
    await say("220 test mail")
    while True:
        command = (await line_of(reader)).decode().strip()
        verb = command.split(" ")[0].upper()
        if verb == "EHLO":
            await say("250-test mail")
            await say("250 AUTH PLAIN")
        elif verb == "AUTH":
            knows = is_known(command.split(" ")[2])
            await say("235 welcome" if knows else "535 wrong password")
        elif verb == "QUIT":
            return await say("221 bye")
        elif verb == "RSET":
            to = []
            await say("250 ok")
        elif not knows:
            await say("530 who are you?")
        elif verb == "MAIL":
            await say("250 ok")
        elif verb == "RCPT":
            # Somebody whose box is full until the file is gone.
            address = address_in(command)
            if os.path.exists(os.path.join(FOLDER, "full-" + address)):
                await say("452 the box is full")
            else:
                to.append(address)
                await say("250 ok")
        elif verb == "DATA" and to:
            await say("354 go on")
            mail = await mail_of(reader)
            for address in to:
                deliver(address, mail)
            to = []
            await say("250 taken")
        else:
            await say("503 not now")


async def pop3(reader, writer):
    async def say(text):
        writer.write((text + "\r\n").encode())
        await writer.drain()

    user, mails, deleted = "", None, set()
    await say("+OK test mail")
    while True:
        command = (await line_of(reader)).decode().strip()
        verb, _, rest = command.partition(" ")
        verb = verb.upper()
        if verb == "USER":
            user = os.path.basename(rest)
            await say("+OK")
        elif verb == "PASS" and rest == PASSWORD:
            box = os.path.join(FOLDER, user)
            os.makedirs(box, exist_ok=True)
            mails = [os.path.join(box, name) for name in sorted(os.listdir(box))]
            await say("+OK")
        elif verb == "QUIT":
            # Until the file is gone the line breaks before anything is deleted.
            if os.path.exists(os.path.join(FOLDER, "breaks-off")):
                return
            for mail in deleted:
                os.remove(mail)
            return await say("+OK")
        elif mails is None:
            await say("-ERR who are you?")
        elif verb == "STAT":
            await say("+OK %d %d" % (len(mails), sum(map(os.path.getsize, mails))))
        elif verb == "RETR":
            with open(mails[int(rest) - 1], "rb") as file:
                lines = file.read().splitlines()
            writer.write(b"+OK\r\n")
            for line in lines:
                writer.write((b"." if line.startswith(b".") else b"") + line + b"\r\n")
            await say(".")
        elif verb == "DELE":
            deleted.add(mails[int(rest) - 1])
            await say("+OK")
        else:
            await say("-ERR what?")


def until_gone(speak):
    async def serve(reader, writer):
        try:
            await speak(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    return serve


async def main():
    os.makedirs(FOLDER, exist_ok=True)
    ports = []
    for speak, port in ((smtp, sys.argv[2]), (pop3, sys.argv[3])):
        server = await asyncio.start_server(until_gone(speak), "127.0.0.1", int(port), limit=1 << 20)
        ports.append(server.sockets[0].getsockname()[1])
    print(*ports, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
