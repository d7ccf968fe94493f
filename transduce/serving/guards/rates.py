"""The rates of callers: how many requests each of them may send in a minute."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict

from transduce.serving.refusals import TooManyRequests

MOST_CALLERS = 10_000  # whose rates are remembered


class Rates:
    """One token bucket for each caller."""

    def __init__(self, requests_per_minute: int) -> None:
        self._rate = requests_per_minute / 60  # requests per second; 0: any number
        self._most = max(1, requests_per_minute)  # requests at once
        # By caller: how many requests it may send, and when that was.
        self._allowances: OrderedDict[bytes, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, caller: bytes) -> None:
        """Count one request of a caller, or raise `TooManyRequests`."""
        if not self._rate:
            return
        now = time.monotonic()
        with self._lock:
            allowed, since = self._allowances.pop(caller, (float(self._most), now))
            allowed = min(self._most, allowed + (now - since) * self._rate)
            is_allowed = allowed >= 1
            self._allowances[caller] = (allowed - is_allowed, now)
            if len(self._allowances) > MOST_CALLERS:
                self._allowances.popitem(last=False)
        if not is_allowed:
            wait = math.ceil((1 - allowed) / self._rate)
            raise TooManyRequests(f"Slowdown: {self._most} per 1 minute", wait)
