"""Every schedule by name."""

from __future__ import annotations

from collections.abc import Callable

from predictor.pipeline.orders import Order, gpipe, interleaved, one_f_one_b
from predictor.pipeline.zero_bubble import zb_2p, zb_h1

SCHEDULES: dict[str, Callable[[int, int, int], Order]] = {
    "gpipe": gpipe, "1f1b": one_f_one_b, "interleaved-1f1b": interleaved, "zb-h1": zb_h1,
    "zb-1p": zb_h1, "zb-2p": zb_2p,
}
