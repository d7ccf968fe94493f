"""HTTP connections that give up on a server whose headers never end.

The timeout of a socket starts again with every byte, so a server that sends one byte at a time
would hold a download for ever.
"""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.request
from contextlib import suppress


class _Punctual(http.client.HTTPConnection):
    """A connection whose timeout also holds for all headers of a response together."""

    def getresponse(self) -> http.client.HTTPResponse:
        late = threading.Event()

        def give_up() -> None:
            late.set()
            with suppress(OSError):
                # Not the method of a TLS socket, which another thread is reading.
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

        timer = threading.Timer(self.timeout or 0, give_up)
        timer.start()
        try:
            response = super().getresponse()
        except (OSError, http.client.HTTPException):
            if not late.is_set():
                raise
        finally:
            timer.cancel()
        if late.is_set():
            raise TimeoutError(f"no complete headers in {self.timeout:.0f} seconds")
        return response


class _PunctualTLS(_Punctual, http.client.HTTPSConnection):
    """The same over TLS."""


class PunctualHTTP(urllib.request.HTTPHandler):
    """Opens HTTP addresses with such connections."""

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Punctual, req)


class PunctualHTTPS(urllib.request.HTTPSHandler):
    """Opens HTTPS addresses with such connections."""

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_PunctualTLS, req)
