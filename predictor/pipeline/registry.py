"""Every schedule by name."""

from __future__ import annotations

from predictor.pipeline.gpipe import GPIPE
from predictor.pipeline.interleaved import INTERLEAVED
from predictor.pipeline.one_f_one_b import ONE_F_ONE_B
from predictor.pipeline.schedule import Schedule
from predictor.pipeline.zero_bubble import ZB_1P, ZB_2P, ZB_H1

SCHEDULES: dict[str, Schedule] = {
    schedule.name: schedule
    for schedule in (GPIPE, ONE_F_ONE_B, INTERLEAVED, ZB_H1, ZB_1P, ZB_2P)
}
